"""What the routes work with: things, built elsewhere."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from functions.api.access import Access
from functions.api.meter import Meter, NoMeter
from headrace.clock import Clock, SystemClock
from headrace.log.logs import Logs
from headrace.log.stores import Stores
from headrace.settings import Settings


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one process.

    Attributes:
        logs: the verbs for one request: the same object each time, or, in a process that forgets everything after each
            request, a fresh one.
        random_below: a random integer from 0 to its argument, exclusive.
    """

    settings: Settings
    logs: Callable[[], Logs]
    access: Access
    meter: Meter = field(default_factory=NoMeter)
    clock: Clock = field(default_factory=SystemClock)
    random_below: Callable[[int], int] = secrets.randbelow


def assemble(stores: Stores, access: Access, meter: Meter | None = None) -> Parts:
    """Parts on top of `stores`."""
    settings = stores.settings
    if settings.cold:
        return Parts(settings, lambda: Logs(stores), access, meter or NoMeter(), stores.clock)
    logs = Logs(stores)
    return Parts(settings, lambda: logs, access, meter or NoMeter(), stores.clock)
