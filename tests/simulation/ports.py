"""Store calls as scheduling points and fault points.

A call takes half its time before it takes effect and half after, and may meet one fault. What takes effect goes through
`World.effect`, where the model watches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.errors import StoreThrottled, StoreTimeout
from headrace.wal import SlotTaken
from tests.simulation.plan import TABLES
from tests.simulation.scheduler import Killed

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World


class QueueFailed(Exception):
    """The queue did not answer, or refused."""


class Port:
    """One port of one process."""

    def __init__(self, world: World, process: Process, name: str) -> None:
        self._world = world
        self._process = process
        self._name = name

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Returns the method, as this process sees it."""
        call = f"{self._name}.{method}"

        def send(*args: Any, **kwargs: Any) -> Any:
            return self._send(call, _settled(args), kwargs)

        setattr(self, method, send)
        return send

    def _send(self, call: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        world, process = self._world, self._process
        if not process.alive:
            raise Killed
        if world.calm:
            self._hear(process.clock.wall_ms(), world.true_ms)
            return world.effect(call, args, kwargs)
        actor = world.scheduler.current
        assert actor is not None
        dice = world.dice(actor)
        number, fault = dice.fault(process.prefix + call)
        if fault is not None:
            world.met[process.prefix + call, fault] += 1
            world.struck.append((world.running(actor).op.id, number))
        if world.tracing:
            world.trace(f"{call}{world.show(args, kwargs)}" + (f"   <- {fault} (call {number})" if fault else ""))
        sent_ms, told_ms = process.clock.wall_ms(), list[int]()
        world.scheduler.sleep(dice.latency())
        answer = self._meet(fault, call, args, kwargs, told_ms)
        if world.tracing and fault is None and call == "wal.commit" and isinstance(answer, SlotTaken):
            world.trace(f"   slot is taken by {answer.entry.id}")
        if fault is not None or dice.roll() < 0.4:
            world.scheduler.sleep(dice.latency())
        if told_ms:
            self._hear(sent_ms, told_ms[0])
        return answer

    def _hear(self, sent_ms: int, told_ms: int) -> None:
        """The answers of tables tell the time, cut to a second."""
        if self._name in TABLES:
            self._process.clock.follow(sent_ms, told_ms // 1000 * 1000)

    def _meet(
        self, fault: str | None, call: str, args: tuple[Any, ...], kwargs: dict[str, Any], told_ms: list[int]
    ) -> Any:
        """Makes the call with its fault; every branch that changes something says when it takes effect. The true time of
        that is added to `told_ms`.
        """
        world, process = self._world, self._process

        def effect(*sent: Any) -> Any:
            told_ms.append(world.true_ms)
            return world.effect(*sent)

        failed: type[Exception] = QueueFailed if call == "queue.send" else StoreTimeout
        match fault:
            case None:
                return effect(call, args, kwargs)
            case "crash_before":
                process.crash()
                raise Killed
            case "crash_after":
                effect(call, args, kwargs)
                process.crash()
                raise Killed
            case "timeout":
                raise failed(call)
            case "throttle":
                raise (QueueFailed if call == "queue.send" else StoreThrottled)(call)
            case "pause_before":
                process.freeze()
                return effect(call, args, kwargs)
            case "pause_after":
                answer = effect(call, args, kwargs)
                process.freeze()
                return answer
            case "suspend_before":
                process.suspend()
                return effect(call, args, kwargs)
            case "suspend_after":
                answer = effect(call, args, kwargs)
                process.suspend()
                return answer
            case "clock_set":
                answer = effect(call, args, kwargs)
                process.clock.set()
                return answer
            case "lost_answer":
                effect(call, args, kwargs)
                raise failed(call)
            case "arrives_later":
                world.later(call, args, kwargs)
                raise failed(call)
            case "arrives_twice":
                answer = effect(call, args, kwargs)
                world.later(call, args, kwargs)
                return answer
            case "in_part":
                effect(call, world.part(call, args), kwargs)
                raise failed(call)
            case "refused_own":
                effect(call, args, kwargs)
                return False
            case "stale":
                return world.stale(call, args, kwargs)
        raise ValueError(fault)


def _settled(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments that can be sent twice: generators become lists, and make their own store calls first."""
    return tuple(list(one) if hasattr(one, "__next__") else one for one in args)
