"""A publisher may fall asleep around any call, until the generation that it would create was swept."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from functions.indexer import context as indexer_context
from functions.indexer.follow import follow, publish_merged
from functions.indexer.follow import publish as publish_runs
from functions.indexer.look import look
from functions.indexer.policy import IDLE_RETIRE_AGES
from functions.indexer.retire import rebuild, remove_generations
from functions.indexer.retire import sweep_orphans as sweep_index
from functions.indexer.runs import load_input
from functions.indexer.start import start
from functions.sealer import context as sealer_context
from functions.sealer.seal import seal
from functions.sealer.trim import sweep_orphans, trim
from headrace.errors import StoreError, StoreThrottled, StoreTimeout
from headrace.index.descriptors import decode
from headrace.index.manifest import PUBLISH_MS
from headrace.manifest.store import KEPT_MS
from headrace.objects import ObjectMissing
from headrace.recovery.verify import verify
from tests.support.clocks import HostClock
from tests.unit.indexer.test_merging import SETTINGS, counts, planned, slow_log
from tests.unit.indexer.world import World, each_call
from tests.unit.sealer.world import Interrupts, Watched

SLEEP_S = KEPT_MS / 1000 + 1  # the shortest after which a generation that was replaced at its begin is swept


class Case(NamedTuple):
    """A log, a verb that publishes, and what others do: `publish` takes the next number, `settle` comes to rest.

    Attributes:
        is_done: whether the verb, called again, has done what it is for; always true if it may be too late for that.
        troubles: what befalls the verb's creates, one after the other: a `race` that it loses, a `timeout` without effect.
    """

    world: World
    log_id: str
    verb: Callable[[Any], object]
    publish: Callable[[], object]
    settle: Callable[[], object]
    written: list[bytes]
    is_index: bool = True
    verb_of_indexer: bool = True
    is_done: Callable[[], bool] = lambda: True
    troubles: tuple[str, ...] = ("race", "timeout")
    is_trimmed: bool = False

    @property
    def plain(self) -> Any:
        """The parts of a host that does not sleep."""
        return self.world.indexer if self.verb_of_indexer else self.world.parts

    def context(self, hook: Sleeps) -> Any:
        """Returns the parts of the host that sleeps."""
        world = self.world
        ports: dict[str, Any] = {name: Answers(getattr(world.stores, name), hook) for name in PORTS}
        stores = dataclasses.replace(world.stores, clock=hook.clock, **ports)
        if not self.verb_of_indexer:
            return sealer_context.assemble(stores, world.queue)
        return indexer_context.assemble(stores, world.jobs, world.runs, world.wakes)

    def standing(self) -> list[int]:
        """Returns the generations of what the verb publishes."""
        store: Any = self.world.indexer.indexes if self.is_index else self.world.stores.manifests()
        standing: list[int] = store.standing(self.log_id)
        return standing

    def sweep(self) -> None:
        """Removes what the daily sweeps remove. If trims are late, a sealer still finds the entries that were sealed."""
        if self.is_trimmed:
            trim(self.world.parts, self.log_id)
        sweep_orphans(self.world.parts, self.log_id)
        remove_generations(self.world.indexer, self.log_id)
        sweep_index(self.world.indexer, self.log_id)

    def check(self) -> None:
        """Asserts that every record is there, and that every object exists that is in force."""
        errors = [one for one in verify(self.world.stores, self.log_id).findings if one.severity == "error"]
        assert [one for one in errors if one.kind != "index.damaged"] == [], "parts of this world are made up"
        published = self.world.published(self.log_id)
        assert published == self.written[: len(published)]
        for run in self.world.index(self.log_id).runs:
            found = decode(self.world.objects.get(run.descriptor), run.descriptor)
            for part in found.parts["lex"]:
                self.world.objects.get(part.key)


def indexed() -> tuple[World, str, list[bytes], Callable[[], None], Callable[[], None]]:
    """Returns a log with one generation of its index, and what others do to it."""
    world = World()
    log_id = world.create("a")
    written = world.publish("a", log_id, 2)
    others(world, log_id)
    assert world.indexer.indexes.standing(log_id) == [1]

    def publish() -> None:
        index = world.index(log_id)
        following = replace(index, generation=index.generation + 1, created_ms=world.indexer.now_ms())
        assert world.indexer.publish(following, world.indexer.look())

    return world, log_id, written, publish, lambda: others(world, log_id)


def others(world: World, log_id: str) -> None:
    """What is due for an index: looked at, started, done and published."""
    work(world, log_id)
    follow(world.indexer)


def work(world: World, log_id: str) -> None:
    """Looks at a log, starts what is due, and does it."""
    look(world.indexer, log_id)
    world.wait(400)
    start(world.indexer)
    world.work_all()


def following() -> Case:
    world, log_id, written, publish, settle = indexed()
    written += world.publish("a", log_id, 2)
    work(world, log_id)

    def rebuilt() -> None:
        follow(world.indexer)
        rebuild(world.indexer, log_id)
        settle()
        settle()

    return Case(world, log_id, follow, publish, rebuilt, written)


def sealing() -> Case:
    world = World(replace(SETTINGS, seal_records=3, merge_segments=0))
    log_id = world.create("a")
    written = world.publish("a", log_id, 1)
    written += world.fill("a", 1)

    def others() -> None:
        written.extend(world.publish("a", log_id, 1))

    def verb(parts: Any) -> object:
        return seal(parts, log_id, force=True)

    def is_done() -> bool:
        return world.published(log_id) == written

    return Case(world, log_id, verb, others, others, written, False, False, is_done, ("timeout",))


def sealing_trimmed() -> Case:
    return sealing()._replace(is_trimmed=True)


def merging() -> Case:
    world = World(SETTINGS)
    log_id = world.create("a")
    written = world.publish("a", log_id, 4)
    world.wait(SETTINGS.merge_age_ms / 1000)
    task, made = planned(world, log_id)

    def others() -> None:
        written.extend(world.publish("a", log_id, 1))

    def verb(parts: Any) -> object:
        return publish_merged(parts, task, made)

    return Case(world, log_id, verb, others, others, written, is_index=False)


def publishing() -> Case:
    case = following()
    job = load_input(case.world.objects, list(case.world.runs.jobs)[-1])
    assert job is not None
    tasks = job.tasks
    return case._replace(verb=lambda parts: publish_runs(parts, case.log_id, tasks))


def retiring() -> Case:
    world, log_id, written, publish, settle = indexed()
    rebuild(world.indexer, log_id)
    world.wait(IDLE_RETIRE_AGES * world.indexer.limits.retire_age_ms / 1000)

    def verb(parts: Any) -> None:
        for _, trouble in start(parts).failed:
            raise trouble

    def is_done() -> bool:
        return not world.index(log_id).retired

    return Case(world, log_id, verb, publish, settle, written, is_done=is_done, troubles=("timeout",))


def rebuilding() -> Case:
    world, log_id, written, publish, settle = indexed()

    def is_done() -> bool:
        return not world.index(log_id).runs

    return Case(world, log_id, lambda parts: rebuild(parts, log_id), publish, settle, written, is_done=is_done)


PORTS = ("wal", "watermarks", "objects")


class Answers(Watched):
    """A port with a hook around each of its methods, which is told also of the answer that an object is missing."""

    def __getattr__(self, name: str) -> Any:
        """Returns the method, watched."""
        method = getattr(self._target, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._hook(name, False)
            try:
                answer = method(*args, **kwargs)
            except ObjectMissing:
                self._hook(name, True)
                raise
            self._hook(name, True)
            return answer

        return call


class Sleeps:
    """A hook: a host is asleep before a call or after its answer (`at`: its number, and whether after), while others
    publish two generations and sweep; never if `at` is None. The clock named by `stopped` stands still meanwhile. Each
    create of the verb that comes before meets one of the case's troubles.
    """

    def __init__(self, case: Case, at: tuple[int, bool] | None, stopped: str) -> None:
        self.moments: list[tuple[int, bool]] = []
        self.swept: set[int] = set()
        self.clock = HostClock(case.world.clock)
        self.is_unclear = False
        self._case, self._at, self._stopped, self._troubles = case, at, stopped, list(case.troubles)
        self._calls = 0

    def __call__(self, name: str, after: bool) -> None:
        """Counts; sleeps at its call. What was signed before is refused, as AWS does after 15 minutes."""
        if after:
            self.clock.follow()
        else:
            self._calls += 1
        self.moments.append((self._calls, after))
        if self.moments[-1] == self._at:
            self._sleep()
            if not after and name in ("create", "put"):
                raise StoreThrottled("signed a day ago")
        elif name == "create" and not after and self._troubles:
            self._befall(self._troubles.pop(0))

    def _befall(self, trouble: str) -> None:
        if trouble == "race":
            self._case.publish()
        else:
            self.is_unclear = True
            raise StoreTimeout("nothing was written")

    def _sleep(self) -> None:
        case = self._case
        self._troubles.clear()  # they lead to more answers, which set the wall clock right
        began, before = case.world.clock.monotonic(), set(case.standing())
        for _ in range(2):
            case.publish()
        made = set(case.standing())
        case.world.wait(SLEEP_S)
        case.sweep()
        self.swept = (before | made) - set(case.standing())
        assert max(before) + 1 in self.swept, "the next number is free"
        self.clock.miss(case.world.clock.monotonic() - began, self._stopped)


def moments(make: Callable[[], Case]) -> list[tuple[int, bool]]:
    """Returns when a verb may fall asleep: before each of its calls, and after each answer; those of the repeats that its
    troubles lead to, too.
    """
    case = make()
    before = case.standing()
    hook = Sleeps(case, None, "")
    case.verb(case.context(hook))
    assert case.standing()[-1] == before[-1] + case.troubles.count("race") + 1, "lost races, then its own"
    return hook.moments


@pytest.mark.parametrize("stopped", ["none", "monotonic", "wall"])
@pytest.mark.parametrize("make", [sealing, sealing_trimmed, merging, publishing, retiring, rebuilding])
def test_no_swept_number_is_used_again_wherever_a_publisher_fell_asleep(
    make: Callable[[], Case], stopped: str
) -> None:
    for at in moments(make):
        case = make()
        hook = Sleeps(case, at, stopped)
        try:
            case.verb(case.context(hook))
        except StoreThrottled:
            pass
        except StoreTimeout:
            assert hook.is_unclear
        assert hook.swept, at
        assert hook.swept.isdisjoint(case.standing()), at
        case.check()
        case.verb(case.plain)
        assert case.is_done(), at
        assert hook.swept.isdisjoint(case.standing()), at
        case.check()


def test_a_run_that_was_retired_and_removed_is_not_published_again() -> None:
    def run(at: int) -> bool:
        case = following()
        world, log_id = case.world, case.log_id

        def retire() -> None:
            follow(world.indexer)
            rebuild(world.indexer, log_id)
            world.wait(IDLE_RETIRE_AGES * world.indexer.limits.retire_age_ms / 1000)
            start(world.indexer)
            assert not world.index(log_id).retired

        hook = Interrupts(at, retire)
        with contextlib.suppress(StoreError):
            follow(world.watched_indexer(hook))
        case.check()
        return hook.calls >= at

    assert each_call(run) > 6


def test_a_run_that_comes_late_is_not_published() -> None:
    case = following()
    case.world.wait(PUBLISH_MS / 1000 + 1)
    follow(case.world.indexer)
    assert case.standing() == [1]
    case.settle()
    assert case.world.covered(case.log_id)


def test_an_orphan_sweep_that_slept_removes_no_run_in_force() -> None:
    def run(at: int) -> bool:
        world, log_id, written, publish, settle = indexed()
        world.wait(SLEEP_S)  # so that the run in force is looked at
        written += world.publish("a", log_id, 2)
        work(world, log_id)

        def sleep() -> None:
            follow(world.indexer)
            world.wait(SLEEP_S)

        hook = Interrupts(at, sleep)
        with contextlib.suppress(StoreThrottled):
            sweep_index(world.watched_indexer(hook), log_id)
        Case(world, log_id, follow, publish, settle, written).check()
        return hook.calls >= at

    assert each_call(run) > 3


def test_an_indexer_whose_host_sleeps_for_two_days_damages_nothing_wherever_it_fell_asleep() -> None:
    def run(at: int) -> bool:
        world, log_id, written = slow_log()
        task, made = planned(world, log_id)

        def sleep() -> None:
            """Others seal and sweep meanwhile."""
            world.wait(48 * 3600)
            written.extend(world.publish("a", log_id, 1))
            sweep_orphans(world.parts, log_id)

        hook = Interrupts(at, sleep)
        published = False
        with contextlib.suppress(StoreThrottled):  # its look was too old
            published = publish_merged(world.watched_indexer(hook), task, made)
        came = hook.calls >= at
        outcomes.add(published)
        assert world.published(log_id) == written
        assert counts(world, log_id) == ([15] if published else [3] * 5) + [3] * came
        assert [one for one in verify(world.stores, log_id).findings if one.severity == "error"] == []
        return came

    outcomes: set[bool] = set()
    assert each_call(run) > 6
    assert outcomes == {True, False}
