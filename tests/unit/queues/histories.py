"""Random histories of a queue: events that can happen, chosen from a model."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from headrace.queues import events
from headrace.queues.events import AnyEvent
from tests.unit.queues.model import Model, flat

NODES = ("a", "b", "c")


class History:
    """A queue that lives: each step produces jobs, passes time, or makes an event.

    Attributes:
        model: the queue after the events so far.
        events: the events.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.model = Model(now_ms=1_000)
        self.events: list[AnyEvent] = []
        self._incarnation = 0

    def step(self) -> AnyEvent | None:
        """Makes one step; returns its event, if it made one."""
        choice: Callable[[], AnyEvent | None] = self.random.choices(
            (
                self._produce,
                self._wait,
                self._claim,
                self._ack,
                self._nack,
                self._extend,
                self._release,
                self._dead,
                self._remove,
                self._rise,
                self._lose,
                self._join,
                self._deal,
            ),
            (4, 3, 6, 5, 3, 3, 1, 1, 1, 1, 0.3, 2, 2),
        )[0]
        event = choice()
        if event is not None:
            self.model.apply(event)
            self.events.append(event)
        return event

    def _at(self) -> int:
        """Returns the time of an event by some clock, which can be behind."""
        return max(self.model.now_ms, self.model.now_ms + self.random.randint(-50, 50))

    def _some(self, jobs: list[int]) -> list[int]:
        return sorted(self.random.sample(jobs, self.random.randint(0, min(len(jobs), 6))))

    def _now(self) -> int:
        at = self._at()
        self.model.pass_time(at)
        return at

    def _id(self) -> str:
        return f"{self.random.getrandbits(64):x}"

    def _produce(self) -> None:
        self.model.produce(self.random.randint(1, 8))

    def _wait(self) -> None:
        self.model.pass_time(self.model.now_ms + self.random.randint(0, 400))

    def _claim(self) -> AnyEvent | None:
        at = self._now()
        taken = self.model.claimable()[: self.random.randint(1, 7)]
        fresh = [one for one in taken if self.model.jobs[one].state == "fresh"]
        gone = [one for one in fresh if self.random.random() < 0.1]
        jobs = [one for one in taken if one not in gone]
        if not jobs:
            return None
        node = self.random.choice(NODES)
        connection = self.random.choice(("", "s1"))
        until = at + self.random.randint(0, 500)
        return events.Claim(
            at=at, id=self._id(), node=node, until=until, jobs=flat(jobs), gone=flat(gone), connection=connection
        )

    def _held(self) -> tuple[int, str, list[int]]:
        at, node = self._now(), self.random.choice(NODES)
        return at, node, self._some(self.model.held(node))

    def _ack(self) -> AnyEvent | None:
        at, node, jobs = self._held()
        return events.Ack(at=at, node=node, jobs=flat(jobs)) if jobs else None

    def _nack(self) -> AnyEvent | None:
        at, node, jobs = self._held()
        ready = self.random.choice((0, at + self.random.randint(1, 300)))
        return events.Nack(at=at, node=node, jobs=flat(jobs), ready_at=ready) if jobs else None

    def _extend(self) -> AnyEvent | None:
        at, node, jobs = self._held()
        until = at + self.random.randint(0, 500)
        return events.Extend(at=at, node=node, jobs=flat(jobs), until=until) if jobs else None

    def _release(self) -> AnyEvent | None:
        at, node, _ = self._held()
        jobs = [one for one in self.model.held(node) if self.model.jobs[one].connection == "s1"]
        return events.Release(at=at, node=node, connection="s1", jobs=flat(jobs)) if jobs else None

    def _dead(self) -> AnyEvent | None:
        at = self._now()
        jobs = self._some([one for one in self.model.claimable() if self.model.jobs[one].state == "back"])
        return events.Dead(at=at, jobs=flat(jobs), topic="dead") if jobs else None

    def _remove(self) -> AnyEvent | None:
        at = self._now()
        jobs = self._some([one for one, job in self.model.jobs.items() if job.state != "done"])
        return events.Remove(at=at, jobs=flat(jobs)) if jobs else None

    def _rise(self) -> AnyEvent | None:
        floor = self.random.randint(0, self.model.end // 3)
        return events.Remove(at=self._now(), jobs=(), floor=floor)

    def _lose(self) -> AnyEvent | None:
        self._incarnation += 1
        end = max(0, self.model.end - self.random.randint(0, 5))
        return events.Remove(at=self._now(), jobs=(), lost=events.Lost(self._incarnation, end))

    def _join(self) -> AnyEvent | None:
        at, model = self._now(), self.model
        closes = max([join.closes for join in model.joins if join.closes >= at], default=at + 30)
        return events.Join(
            at=at, id=self._id(), node=self.random.choice(NODES), max=3, lease_ms=200, max_bytes=1000, closes=closes
        )

    def _deal(self) -> AnyEvent | None:
        at, model = self._now(), self.model
        closed = [join.closes for join in model.joins if join.closes <= at]
        if not closed:
            return None
        members = [join for join in model.joins if join.closes == closed[0]]
        jobs = model.claimable()[: self.random.randint(0, 3 * len(members))]
        hands = [
            events.Dealt(join.id, join.node, at + join.lease_ms, flat(jobs[number :: len(members)]))
            for number, join in enumerate(members)
        ]
        return events.Deal(at=at, closes=closed[0], hands=tuple(hand for hand in hands if hand.jobs))
