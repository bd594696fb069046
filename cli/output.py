"""How read records are written: as one JSON array, one a line, or without anything between them."""

from __future__ import annotations

from typing import BinaryIO, Protocol

LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")


class RecordWriter(Protocol):
    """Takes records one by one. `finish` completes the document."""

    def write(self, record: bytes) -> None: ...

    def finish(self) -> None: ...


class ArrayWriter:
    """One JSON array; the text of each element is what was appended."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lead = b"["

    def write(self, record: bytes) -> None:
        self._out.write(self._lead + record)
        self._lead = b",\n"

    def finish(self) -> None:
        self._out.write(b"[]\n" if self._lead == b"[" else b"]\n")


class LineWriter:
    """One record a line. Line breaks between a record's own tokens, the only place where JSON has them,
    become spaces; all else stays as it is."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, record: bytes) -> None:
        self._out.write(record.translate(LINE_BREAKS) + b"\n")

    def finish(self) -> None:
        pass


class RawWriter:
    """The bytes and nothing else."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, record: bytes) -> None:
        self._out.write(record)

    def finish(self) -> None:
        pass


WRITERS: dict[str, type[ArrayWriter] | type[LineWriter] | type[RawWriter]] = {
    "json": ArrayWriter,
    "lines": LineWriter,
    "raw": RawWriter,
}
