"""Processes that die at any call, or before any call of which another process does something."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headrace.log.stores import Stores
from tests.unit.features.world import World

PORTS = ("wal", "catalog", "watermarks", "producers", "follows", "objects")


class Died(Exception):
    """A process ends here."""


class Interposed:
    """Stores of which a call can be the last one of its process, or be preceded by another process's work."""

    def __init__(self, stores: Stores) -> None:
        self.left = -1
        self.action: Callable[[], object] | None = None
        ports: dict[str, Any] = {name: _Port(self, getattr(stores, name)) for name in PORTS}
        tables: dict[str, Any] = {name: _Port(self, one) for name, one in stores.tables.items()}
        self.stores = replace(stores, **ports, tables=tables)
        self.calls = 0

    def before(self) -> None:
        self.calls += 1
        if self.calls == self.left and self.action is not None:
            action, self.action = self.action, None
            action()


class _Port:
    def __init__(self, owner: Interposed, target: Any) -> None:
        self._owner = owner
        self._target = target

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._target, method)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            self._owner.before()
            return found(*arguments, **options)

        return call


def at_every_call(
    run: Callable[[Interposed, World], object], prepare: Callable[[], World], action: Callable[[World], object]
) -> int:
    """Runs something again and again, each time with `action` before another one of its calls. Returns how many calls
    there are.
    """
    for number in itertools.count(1):
        world = prepare()
        port = Interposed(world.stores)
        port.left, port.action = number, lambda world=world: action(world)
        run(port, world)
        if port.action is not None:
            return number - 1
    raise AssertionError("it ends")


def die(_: World) -> None:
    """Ends the process before its call."""
    raise Died
