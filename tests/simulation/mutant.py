"""A broken variant of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

Patch = tuple[Any, str, Any]


class Mutant:
    """A name, what is broken, and how: attributes of the engine to replace, and a change of the shared adapters."""

    def __init__(
        self,
        name: str,
        hazard: str,
        *patches: Patch,
        adapter: Callable[[dict[str, Any]], None] | None = None,
        world: str = "",
    ) -> None:
        """Creates a mutant. `world` is the world that notices it (`tests.simulation.relay`); empty: that of logs does."""
        self.name = name
        self.hazard = hazard
        self.world = world
        self._patches = patches
        self._adapter = adapter

    def adapt(self, raw: dict[str, Any]) -> None:
        """Breaks the adapters of one run."""
        if self._adapter is not None:
            self._adapter(raw)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Breaks the engine."""
        with ExitStack() as stack:
            for owner, name, value in self._patches:
                stack.enter_context(patch.object(owner, name, value))
            yield
