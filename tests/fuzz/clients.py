"""The parsers of the command line: JSON text from a person's pipe, and events from a server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from cli.commands.tail import pages
from cli.elements import json_records, line_records
from cli.errors import BadInput, CliError, envelope_message
from cli.pages import descriptors
from cli.pages import elements as page_elements
from cli.sse import Event
from cli.sse import events as parse_events
from tests.fuzz.grammar import json_text
from tests.fuzz.samples import edited

_WHITE = " \t\n\r"
_BREAK = re.compile(rb"\r\n|\r|\n")
_decoder = json.JSONDecoder()


def elements(data: bytes) -> None:
    """The records do not depend on where the text is cut; they are its values, array elements one by one.

    The first byte is the size of the chunks; from 0x80 on the rest chooses valid text.
    """
    size, text = _size(data), data[1:]
    if data[:1] >= b"\x80":
        text = json_text(text)
    for split in (json_records, line_records):
        whole = _records(split, [text])
        assert _records(split, _chunks(text, size)) == whole
        if whole is None:
            continue
        assert _records(json_records, [b"[", b",".join(whole), b"]"]) == whole
        values = _values(text, flat=split is json_records)
        assert values is None or values == [json.loads(record) for record in whole]


def _records(split: Callable[..., Iterator[bytes | None]], chunks: list[bytes]) -> list[bytes] | None:
    try:
        return [record for record in split(chunks) if record is not None]
    except BadInput:
        return None


def _values(data: bytes, *, flat: bool) -> list[Any] | None:
    """Returns what the standard library makes of the text; None if it is not UTF-8, or beyond the library's own
    bounds.
    """
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
        found: list[Any] = []
        at = _skip(text, 0)
        while at < len(text):
            value, at = _decoder.raw_decode(text, at)
            found.extend(value if flat and isinstance(value, list) else [value])
            at = _skip(text, at)
    except (UnicodeDecodeError, RecursionError):
        return None
    except ValueError as exc:
        assert "int string conversion" in str(exc), f"accepted what is not JSON: {exc}"
        return None
    return found


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _WHITE:
        at += 1
    return at


def events(data: bytes) -> None:
    """Lines do not depend on where the bytes are cut; each data event comes once, in order, in one page."""
    size, stream = _size(data), data[1:]
    parsed = list(parse_events([stream]))
    assert list(parse_events(_chunks(stream, size))) == parsed
    *complete, _ = _BREAK.split(stream)
    lines = b"".join(line + b"\n" for line in complete)
    assert list(parse_events([lines])) == parsed
    for is_base64 in (False, True):
        try:
            found = list(pages([stream], "-1", is_base64=is_base64))
        except CliError:
            continue
        if not is_base64:
            assert b"".join(page.body for page in found) == b"".join(_settled(parsed))
        for page in found:
            try:
                page_elements(page.body)
            except CliError:
                continue


def answers(data: bytes) -> None:
    """The body of any answer: an error's, a listing's, a page's. Raw, or valid text with one edit."""
    body = data[1:] if data[:1] < b"\x80" else edited(json_text(data[1:]), data[1:4])
    message = envelope_message(body)
    assert len(message) <= len(body.decode("utf-8", "replace")) + 2
    for read in (descriptors, page_elements):
        try:
            read(body)
        except CliError:
            continue


def _settled(parsed: list[Event]) -> list[bytes]:
    """Returns the data of events that a control event follows."""
    settled: list[bytes] = []
    held: list[bytes] = []
    for event in parsed:
        if event.type == "data":
            held.append(event.data.encode())
        elif event.type == "control":
            settled, held = settled + held, []
    return settled


def _size(data: bytes) -> int:
    return data[0] % 32 + 1 if data else 1


def _chunks(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
