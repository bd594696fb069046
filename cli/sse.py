"""Server-sent events, parsed as they arrive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """One server-sent event: its type, its data lines joined by newlines, and the last event id so far."""

    type: str
    data: str
    id: str = ""


class EventParser:
    """A parser of a text/event-stream. Feed it chunks of any size; it returns the events that each chunk completes.

    Lines end with LF, CRLF or CR, and only these: other Unicode line breaks are data. An event that the end of the input
    cuts off is dropped, as the format requires.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._after_return = False
        self._kind = "message"
        self._data: list[str] = []
        self._id = ""

    def feed(self, chunk: bytes) -> list[Event]:
        """Adds a chunk and returns the events that it completes."""
        if self._after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_return = False
        if not chunk:
            return []
        self._after_return = chunk.endswith(b"\r")
        text = self._rest + chunk
        *lines, self._rest = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        return [event for line in lines for event in self._take(line.decode("utf-8", "replace"))]

    def _take(self, line: str) -> Iterator[Event]:
        """Takes a line; yields the event that it ends, if it ends one."""
        if not line:
            if self._data:
                yield Event(self._kind, "\n".join(self._data), self._id)
            self._kind, self._data = "message", []
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._kind = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value


def events(chunks: Iterable[bytes]) -> Iterator[Event]:
    """Yields the events of a text/event-stream that arrives in chunks."""
    parser = EventParser()
    for chunk in chunks:
        yield from parser.feed(chunk)
