"""Splits JSON text into records as it arrives, and takes JSON documents apart. The text of each part is kept, byte for
byte.

The input is a sequence of JSON values separated by white space: each element of an array is one record, any other value
is one record. Memory holds one record and one chunk, whatever the size of the input.

Numbers in documents stay text, whatever their length, because nothing here calculates with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from cli.errors import BadInput

PAUSE = None
"""In a sequence of chunks or records, marks that the input has paused: records read so far may be sent."""

MAX_RECORD_BYTES = 64 * 1024 * 1024
"""No server takes a record this large; without a bound an unclosed bracket would fill the memory."""

WHITE = b" \t\n\r"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{},]', re.DOTALL)
"""Matches a whole string, or a quote that opens an incomplete string, or a structural character."""
STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
SPACE = re.compile(rb"[ \t\n\r]*+")
SCALAR = re.compile(rb'[^ \t\n\r"\[\]{},]*+')


class State(Enum):
    BETWEEN = "between values"
    ARRAY = "inside an array"
    VALUE = "inside a value that is one record"
    SCALAR = "inside a number or a word"


class ElementSplitter:
    """A splitter of JSON text into records. Feed it chunks of any size; it returns the records that each chunk
    completes.

    >>> splitter = ElementSplitter()
    >>> splitter.feed(b'[{"a": 1.0 }, 2') + splitter.feed(b'3]') + splitter.finish()
    [b'{"a": 1.0 }', b'23']
    """

    def __init__(self) -> None:
        self._state = State.BETWEEN
        self._buffer = b""
        self._from = 0  # where the record in hand starts in the buffer
        self._at = 0  # up to where the buffer is scanned
        self._depth = 0  # open brackets inside the record in hand
        self._in_string = False
        self._after_comma = False
        self._passed = 0  # bytes before the buffer, for messages
        self._started = False
        self.records = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Adds a chunk and returns the records that it completes. Raises `BadInput` if the text can't be JSON."""
        self._forget_scanned()
        self._buffer += chunk
        if not self._started:
            if len(self._buffer) < 3 and BYTE_ORDER_MARK.startswith(self._buffer):
                return []
            self._started = True
            if self._buffer.startswith(BYTE_ORDER_MARK):
                self._from = self._at = 3
        found: list[bytes] = []
        while self._step(found):
            pass
        if len(self._buffer) - self._from > MAX_RECORD_BYTES:
            self._fail(f"a record of more than {MAX_RECORD_BYTES} bytes")
        return found

    def finish(self) -> list[bytes]:
        """Ends the input and returns the last record, if it is complete. Raises `BadInput` if it is cut off."""
        found: list[bytes] = []
        if self._state is State.SCALAR:
            self._emit(found, len(self._buffer))
        elif self._state is not State.BETWEEN or self._buffer[self._at :].strip(WHITE):
            self._fail(f"the input ends {self._state.value}")
        return found

    def _step(self, found: list[bytes]) -> bool:
        """Scans one more part of the buffer, and adds completed records to `found`. Returns False at the end of the
        buffer.
        """
        if self._state is State.BETWEEN:
            return self._open_value()
        if self._state is State.SCALAR:
            return self._scan_scalar(found)
        if self._in_string and not self._scan_string_rest():
            return False
        return self._scan_tokens(found)

    def _open_value(self) -> bool:
        self._at = self._from = end_of(SPACE, self._buffer, self._at)
        if self._at == len(self._buffer):
            return False
        first = self._buffer[self._at : self._at + 1]
        self._depth = 0
        if first == b"[":
            self._state, self._after_comma = State.ARRAY, False
            self._at = self._from = self._at + 1
        elif first in (b"{", b'"'):
            self._state = State.VALUE
        elif first in (b"]", b"}", b","):
            self._fail(f"{first.decode()} where a value should start")
        else:
            self._state = State.SCALAR
        return True

    def _scan_scalar(self, found: list[bytes]) -> bool:
        self._at = end_of(SCALAR, self._buffer, self._at)
        if self._at == len(self._buffer):
            return False
        self._emit(found, self._at)
        self._state = State.BETWEEN
        return True

    def _scan_string_rest(self) -> bool:
        end = end_of(STRING_REST, self._buffer, self._at)
        if self._buffer[end : end + 1] != b'"':
            self._at = end  # at the end of the buffer, or at a backslash whose pair is still to come
            return False
        self._at = end + 1
        self._in_string = False
        return True

    def _scan_tokens(self, found: list[bytes]) -> bool:
        in_array = self._state is State.ARRAY
        buffer, depth = self._buffer, self._depth
        if not in_array and depth == 0 and self._at > self._from:  # a top-level string that has just ended
            return self._close_value(found, self._at)
        for token in TOKEN.finditer(buffer, self._at):
            text = token.group()
            if len(text) > 1:
                if not in_array and depth == 0:
                    return self._close_value(found, token.end())
                continue
            if text == b",":
                if in_array and depth == 0:
                    self._emit(found, token.start())
                    self._from, self._after_comma = token.end(), True
            elif text == b"{" or text == b"[":
                depth += 1
            elif text == b'"':
                self._depth, self._at, self._in_string = depth, token.end(), True
                return self._scan_string_rest()
            elif depth > 0:
                depth -= 1
                if depth == 0 and not in_array:
                    self._depth = 0
                    return self._close_value(found, token.end())
            elif text == b"]" and in_array:
                return self._close_array(found, token)
            else:
                self._at = token.start()
                self._fail(f"{text.decode()} closes nothing")
        self._depth, self._at = depth, len(buffer)
        return False

    def _close_value(self, found: list[bytes], end: int) -> bool:
        self._emit(found, end)
        self._state, self._at, self._from = State.BETWEEN, end, end
        return True

    def _close_array(self, found: list[bytes], token: re.Match[bytes]) -> bool:
        is_empty = not self._after_comma and not self._buffer[self._from : token.start()].strip(WHITE)
        if not is_empty:
            self._emit(found, token.start())
        self._state, self._at, self._from = State.BETWEEN, token.end(), token.end()
        return True

    def _emit(self, found: list[bytes], end: int) -> None:
        text = self._buffer[self._from : end].strip(WHITE)
        self._at = end
        problem = json_problem(text)
        if problem:
            self._fail(problem)
        self.records += 1
        found.append(text)

    def _forget_scanned(self) -> None:
        """Drops the part of the buffer before the current record."""
        self._passed += self._from
        self._buffer = self._buffer[self._from :]
        self._at -= self._from
        self._from = 0

    def _fail(self, problem: str) -> None:
        position = self._passed + self._at
        raise BadInput(
            f"not JSON: record {self.records + 1}, near byte {position}: {problem}",
            "one JSON value a line: --format lines; bytes: create the stream with another --content-type",
        )


def end_of(pattern: re.Pattern[bytes], buffer: bytes, position: int) -> int:
    """Returns the end of a pattern's match at a position. The pattern must match at least the empty string."""
    match = pattern.match(buffer, position)
    assert match is not None
    return match.end()


def json_records(chunks: Iterable[bytes | None]) -> Iterator[bytes | None]:
    """Splits JSON text into records and yields them; passes pauses on. Raises `BadInput` if the text is not JSON."""
    splitter = ElementSplitter()
    for chunk in chunks:
        if chunk is None:
            yield PAUSE
        else:
            yield from splitter.feed(chunk)
    yield from splitter.finish()


def line_records(chunks: Iterable[bytes | None]) -> Iterator[bytes | None]:
    """Yields one record per line and skips blank lines; passes pauses on. Raises `BadInput` for a line that is not
    JSON.
    """
    rest: list[bytes] = []
    number = 0

    def record(line: bytes) -> Iterator[bytes]:
        text = line.strip(WHITE)
        if number == 1:
            text = text.removeprefix(BYTE_ORDER_MARK).strip(WHITE)
        if not text:
            return
        problem = json_problem(text)
        if problem:
            raise BadInput(f"not JSON: line {number}: {problem}", "for a JSON document use --format json")
        yield text

    for chunk in chunks:
        if chunk is None:
            yield PAUSE
            continue
        *complete, tail = chunk.split(b"\n")
        for line in complete:
            number += 1
            yield from record(b"".join(rest) + line if rest else line)
            rest.clear()
        if tail:
            rest.append(tail)
    number += 1
    yield from record(b"".join(rest))


_SPACE = re.compile(r"[ \t\n\r]*")


def _refuse(name: str) -> str:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)


def json_problem(text: bytes) -> str:
    """Explains why `text` is not exactly one JSON value. Returns an empty text if it is one, or if it is nested too
    deeply to tell.
    """
    if not text:
        return "a value is missing"
    try:
        _decoder.decode(text.decode())
    except ValueError as error:
        return str(error)
    except RecursionError:
        return ""  # the server decides
    return ""


def array_elements(text: str) -> list[str]:
    """Returns the text of each element of a JSON array. Raises ValueError or RecursionError if `text` is anything
    else.
    """
    found = []
    at = _start(text, "[")
    while at is not None:
        end = _end_of_value(text, at)
        found.append(text[at:end])
        at = _next(text, end, "]")
    return found


def object_members(text: str) -> dict[str, str]:
    """Returns the text of each member's value of a JSON object. Raises ValueError or RecursionError if `text` is
    anything else.
    """
    found = {}
    at = _start(text, "{")
    while at is not None:
        name, end = _decoder.raw_decode(text, at)
        if not isinstance(name, str) or text[at] != '"':
            raise ValueError(f"a name is missing at {at}")
        at = _skip(text, end, ":")
        end = _end_of_value(text, at)
        found[name] = text[at:end]
        at = _next(text, end, "}")
    return found


def join_object(members: Mapping[str, str]) -> str:
    """Builds the text of a JSON object from its members' names and the texts of their values."""
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in members.items()) + "}"


def _start(text: str, opening: str) -> int | None:
    """Returns the position of the first item of an array or object; None if it is empty."""
    at = _skip(text, 0, opening)
    if text[at : at + 1] == ("]" if opening == "[" else "}"):
        _require_end(text, at + 1)
        return None
    return at


def _next(text: str, end: int, closing: str) -> int | None:
    """Returns the position of the item after the one that ends at `end`; None if that was the last."""
    at = _space(text, end)
    if text[at : at + 1] == closing:
        _require_end(text, at + 1)
        return None
    return _skip(text, at, ",")


def _end_of_value(text: str, at: int) -> int:
    return _decoder.raw_decode(text, at)[1]


def _skip(text: str, at: int, mark: str) -> int:
    """Skips white space and the character `mark`, and returns the position of the next token. Raises ValueError if
    `mark` is missing.
    """
    at = _space(text, at)
    if text[at : at + 1] != mark:
        raise ValueError(f"{mark} is missing at {at}")
    return _space(text, at + 1)


def _space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _require_end(text: str, at: int) -> None:
    if _space(text, at) != len(text):
        raise ValueError(f"more than one value: {at}")
