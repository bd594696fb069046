"""Where appended data comes from (files, standard input, the command line), and how it is grouped into request bodies.

The same input with the same limits gives the same bodies, unless the input pauses.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cli.elements import BYTE_ORDER_MARK, PAUSE, WHITE, json_problem, json_records, line_records

CHUNK_BYTES = 256 * 1024
SNIFF_BYTES = 64 * 1024
PAUSE_S = 0.2
"""Standard input that has nothing to read for this long has paused, and records read so far are sent."""

Chunks = Iterator[bytes | None]


@dataclass(frozen=True)
class Source:
    """A source of data to append.

    Attributes:
        size: its size in bytes; None if that is not known.
        open: returns its chunks.
        identity: tells it from other sources when it is read again; empty if it can't be.
    """

    name: str
    size: int | None
    open: Callable[[], Chunks]
    identity: str = ""


def literal(text: str) -> Source:
    data = text.encode()
    return Source("--data", len(data), lambda: iter([data] if data else []), f"data:{text}")


def from_file(path: Path) -> Source:
    if not path.is_file():
        return Source(str(path), None, lambda: file_chunks(path))
    return Source(str(path), path.stat().st_size, lambda: file_chunks(path), f"file:{path.resolve()}")


def from_stdin(*, report_pauses: bool) -> Source:
    """Returns standard input as a source.

    If pauses are reported, batches depend on time, so a run that must form the same batches again does not report them.
    """
    return Source("standard input", None, lambda: pipe_chunks(sys.stdin.fileno(), report_pauses))


def file_chunks(path: Path) -> Chunks:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def pipe_chunks(descriptor: int, report_pauses: bool) -> Chunks:
    """Yields chunks from a file descriptor until its end and, with `report_pauses`, a `PAUSE` each time that nothing
    arrives for 0.2 s after a chunk.
    """
    dirty = False
    while True:
        if report_pauses and dirty and not select.select([descriptor], [], [], PAUSE_S)[0]:
            dirty = False
            yield PAUSE
            continue
        chunk = os.read(descriptor, CHUNK_BYTES)
        if not chunk:
            return
        dirty = True
        yield chunk


def records(source: Source, file_format: str, count_bytes: Callable[[int], None]) -> Chunks:
    """Yields the source's records as `file_format` says: `auto`, `json`, `lines` or `bytes` (chunks as they come); and
    None where the source pauses.

    Calls `count_bytes` with the size of every chunk that is read.
    """
    chunks = counted(source.open(), count_bytes)
    if file_format == "bytes":
        return chunks
    if file_format == "auto":
        head, chunks = peek(chunks)
        file_format = detect(head, is_whole=len(head) < SNIFF_BYTES)
    return json_records(chunks) if file_format == "json" else line_records(chunks)


def counted(chunks: Chunks, count_bytes: Callable[[int], None]) -> Chunks:
    for chunk in chunks:
        if chunk is not None:
            count_bytes(len(chunk))
        yield chunk


def peek(chunks: Chunks) -> tuple[bytes, Chunks]:
    """Returns the first bytes, up to the first pause or the chunk that reaches 64 KiB, and all chunks again from the
    start.
    """
    head: list[bytes | None] = []
    size = 0
    for chunk in chunks:
        head.append(chunk)
        size += len(chunk or b"")
        if chunk is None or size >= SNIFF_BYTES:
            break
    return b"".join(chunk for chunk in head if chunk), chain(head, chunks)


def chain(head: Iterable[bytes | None], rest: Chunks) -> Chunks:
    yield from head
    yield from rest


def detect(head: bytes, *, is_whole: bool) -> str:
    """Guesses the format from the first bytes: `lines` if the first line ends and is a complete JSON value, else
    `json`.

    A single line that is a whole array is `json`: its elements are the records. If a line is longer than `head`, an
    array is `json` and anything else is `lines`.
    """
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip(WHITE)
    first, newline, rest = text.partition(b"\n")
    if newline and not json_problem(first.strip(WHITE)):
        return "lines" if rest.strip(WHITE) or not first.startswith(b"[") else "json"
    if not newline and not is_whole and not text.startswith(b"["):
        return "lines"
    return "json"


@dataclass(frozen=True)
class Batch:
    """The body of one request.

    Attributes:
        records: 0 for bytes, which are not divided into records.
        is_last: the input ended, or has paused: more input would have made the batch longer.
    """

    body: bytes
    records: int
    is_last: bool = False


def json_batches(records: Iterable[bytes | None], max_records: int, max_bytes: int) -> Iterator[Batch]:
    """Groups records into JSON arrays of at most `max_records` records and, brackets and commas included, `max_bytes`
    bytes.

    A record that is larger than `max_bytes` is sent alone. A pause ends a batch.
    """
    held: list[bytes] = []
    size = 2
    for record in records:
        if record is PAUSE:
            if held:
                yield json_batch(held, is_last=True)
                held, size = [], 2
            continue
        if held and (len(held) == max_records or size + len(record) + 1 > max_bytes):
            yield json_batch(held)
            held, size = [], 2
        held.append(record)
        size += len(record) + 1
    if held:
        yield json_batch(held, is_last=True)


def json_batch(records: list[bytes], *, is_last: bool = False) -> Batch:
    return Batch(b"[" + b",".join(records) + b"]", len(records), is_last)


def byte_batches(chunks: Iterable[bytes | None], max_bytes: int) -> Iterator[Batch]:
    """Groups bytes into bodies of exactly `max_bytes` bytes, except the last one and those before a pause."""
    held = bytearray()
    for chunk in chunks:
        if chunk is PAUSE:
            if held:
                yield Batch(bytes(held), 0, is_last=True)
                held.clear()
            continue
        held += chunk
        while len(held) > max_bytes:
            yield Batch(bytes(held[:max_bytes]), 0)
            del held[:max_bytes]
    if held:
        yield Batch(bytes(held), 0, is_last=True)
