"""Server-sent events, read line by line, joined into pages."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from local.cli.errors import CliError
from local.cli.pages import Page


@dataclass(frozen=True)
class Event:
    """One event: its type and its data lines, joined by newlines."""

    type: str
    data: str


class Control(msgspec.Struct, rename="camel"):
    """The data of a `control` event."""

    stream_next_offset: str
    stream_cursor: str | None = None
    up_to_date: bool = False
    stream_closed: bool = False


def events(lines: Iterable[str]) -> Iterator[Event]:
    """Events of a text/event-stream. One cut off by the end of the input is dropped, as the format asks."""
    kind, data = "message", list[str]()
    for line in lines:
        if not line:
            if data:
                yield Event(kind, "\n".join(data))
            kind, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)


def pages(lines: Iterable[str], offset: str, *, is_base64: bool) -> Iterator[Page]:
    """A page for every data event; an empty one for a control event without data. `offset` is where it starts.

    Data is held until a control event says where to go on, so that after a lost connection nothing comes twice.
    Of several pages before one control event only the last moves `next_offset`.
    """
    held: list[bytes] = []
    for event in events(lines):
        if event.type == "data":
            held.append(decode(event.data) if is_base64 else event.data.encode())
        elif event.type == "control":
            control = control_of(event.data)
            bodies = held or [b""]
            held = []
            for number, body in enumerate(bodies, start=1):
                is_last = number == len(bodies)
                yield Page(
                    body=body,
                    next_offset=control.stream_next_offset if is_last else offset,
                    up_to_date=is_last and (control.up_to_date or control.stream_closed),
                    closed=is_last and control.stream_closed,
                    cursor=control.stream_cursor,
                )
            offset = control.stream_next_offset


def control_of(text: str) -> Control:
    try:
        return msgspec.json.decode(text, type=Control)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CliError(f"the server sent a control event that makes no sense: {error}") from error


def decode(text: str) -> bytes:
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except ValueError as error:  # binascii.Error is one; text that is not ASCII is another
        raise CliError(f"the server sent an event that is not base64: {error}") from error


def split_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines that end with LF, CRLF or CR, and only these: other Unicode line breaks are data."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        held_back = rest.endswith(b"\r")  # its LF may be in the next chunk
        whole = rest[:-1] if held_back else rest
        *lines, tail = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest = tail + b"\r" if held_back else tail
        yield from (line.decode("utf-8", "replace") for line in lines)
    if rest.endswith(b"\r"):
        yield rest[:-1].decode("utf-8", "replace")
