"""The errors that only watches have."""

from __future__ import annotations

from headrace.errors import Conflict, NotFound


class WatchNotFound(NotFound):
    """There is no such session, or it has ended."""

    code = "not_found"

    def __init__(self) -> None:
        super().__init__("watch session not found: create another one")


class Fenced(Conflict):
    """A newer stream of the session was opened, and this one ends."""

    code = "watch_reopened"

    def __init__(self) -> None:
        super().__init__("another stream of this watch was opened")
