"""Simulated time, in microseconds, and who is next: always anyone who waits for the earliest moment.

Actors take simulated time only where they wait, and they wait at every store call. How long is drawn from the seed, so
the seed decides how they interleave.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from tests.simulation.coroutines import Coroutine


class Killed(BaseException):
    """The process of this actor is gone."""


class Aborted(BaseException):
    """The run is over: a law was broken."""


class Deadlock(AssertionError):
    """Actors wait, and nothing will ever wake them."""


class Actor:
    """A line of execution."""

    def __init__(self, name: str, body: Callable[[], None], scheduler: Scheduler) -> None:
        self.name = name
        self.poison: BaseException | None = None  # raised where the actor waits, when it wakes
        self.frozen_until: Callable[[], int] = lambda: 0
        self.ticket = -1  # the wake-up that counts; -1: none
        self.over = False
        self._body = body
        self._scheduler = scheduler
        self.coroutine = Coroutine(self._run)

    def _run(self) -> Coroutine:
        try:
            self._scheduler.arrived(self)
            self._body()
        except (Killed, Aborted):
            pass
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the run must end and tell
            self._scheduler.fail(exc)
        self.over = True
        return self._scheduler.leave(self)


class Scheduler:
    """Runs actors to their end."""

    def __init__(self) -> None:
        self.now = 0
        self.failure: BaseException | None = None
        self.actors: list[Actor] = []
        self.current: Actor | None = None
        self._heap: list[tuple[int, int, Actor | Callable[[], None]]] = []
        self._tickets = 0
        self._steps = 0
        self._main: Coroutine | None = None

    def step(self) -> int:
        """Returns a number above all earlier ones: for the order of what happened at one moment."""
        self._steps += 1
        return self._steps

    def start(self, name: str, body: Callable[[], None]) -> Actor:
        """Starts an actor, which begins now; returns it."""
        actor = Actor(name, body, self)
        self.actors.append(actor)
        self.wake(actor)
        return actor

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Does something at a moment: a message that arrives late. The action must not wait."""
        self._tickets += 1
        heapq.heappush(self._heap, (when, self._tickets, action))

    def wake(self, actor: Actor, when: int | None = None) -> None:
        """Lets an actor go on at `when` (now, if None), whatever it waits for."""
        self._tickets += 1
        actor.ticket = self._tickets
        heapq.heappush(self._heap, (self.now if when is None else when, self._tickets, actor))

    def run(self) -> None:
        """Until every actor is over. Raises what `fail` was told."""
        self._main = Coroutine()
        following = self._next()
        if following is not self._main:
            self._main.hand_to(following)
        if self.failure is not None:
            raise self.failure

    def fail(self, exc: BaseException) -> None:
        """Ends the run: every actor is aborted where it waits."""
        if self.failure is None:
            self.failure = exc
            for actor in self.actors:
                if not actor.over:
                    actor.poison = Aborted()
                    if actor is not self.current:
                        self.wake(actor)

    def sleep(self, microseconds: int) -> None:
        """The current actor waits."""
        assert self.current is not None
        self.wake(self.current, self.now + microseconds)
        self.park()

    def park(self) -> None:
        """The current actor waits until somebody wakes it."""
        actor = self.current
        assert actor is not None
        while True:
            following = self._next()
            actor.coroutine.hand_to(following)
            self.current = actor
            self.arrived(actor)
            thaw = actor.frozen_until()
            if thaw <= self.now:
                return
            self.wake(actor, thaw)

    def arrived(self, actor: Actor) -> None:
        """The actor has the baton."""
        self.current = actor
        if actor.poison is not None:
            poison, actor.poison = actor.poison, None
            raise poison
        if self.failure is not None:
            raise Aborted

    def leave(self, actor: Actor) -> Coroutine:
        """Ends the actor; returns the one that runs next."""
        actor.ticket = -1
        return self._next()

    def _next(self) -> Coroutine:
        assert self._main is not None
        while self._heap:
            when, ticket, what = heapq.heappop(self._heap)
            if isinstance(what, Actor):
                if what.over or what.ticket != ticket:
                    continue
                self.now = max(self.now, when)
                what.ticket = -1
                return what.coroutine
            self.now = max(self.now, when)
            if self.failure is None:
                self.current = None
                try:
                    what()
                except BaseException as exc:  # noqa: BLE001 - told by run()
                    self.fail(exc)
        if any(not actor.over for actor in self.actors):
            waiting = [actor.name for actor in self.actors if not actor.over]
            self.fail(Deadlock(f"nothing will wake these actors: {waiting}"))
            return self._next()
        return self._main
