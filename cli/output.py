"""Writes records to an output (as one JSON array, one per line, or unseparated), and shows progress."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from cli.errors import BadInput
from cli.tables import counted, size
from cli.terminal import clean, console, output

LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")


class ArrayWriter:
    """A writer of one JSON array; the text of each element is what was appended."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lead = b"["

    def write(self, record: bytes) -> None:
        self._out.write(self._lead + record)
        self._lead = b",\n"

    def finish(self) -> None:
        self._out.write(b"[]\n" if self._lead == b"[" else b"]\n")


class LineWriter:
    """A writer of one record per line. Line breaks between a record's tokens become spaces; everything else is
    unchanged (JSON strings contain no line breaks).
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, record: bytes) -> None:
        self._out.write(record.translate(LINE_BREAKS) + b"\n")

    def finish(self) -> None:
        pass


class RawWriter:
    """A writer of records' bytes, with nothing between them."""

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


class Label(ProgressColumn):
    """A progress column with text that may come from anywhere: a task's description, or one of its fields."""

    def __init__(self, field: str = "", *, style: str = "", max_width: int | None = None) -> None:
        super().__init__(Column(no_wrap=True, overflow="ellipsis", max_width=max_width))
        self._field = field
        self._style = style

    def render(self, task: Task) -> Text:
        return Text(clean(task.fields.get(self._field, "") if self._field else task.description), style=self._style)


def steps_bar(*extra: ProgressColumn) -> Progress:
    """Returns a display of tasks of which so many steps are done; shown while standard error is a terminal."""
    to = console(err=True)
    return Progress(
        Label(max_width=40),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        *extra,
        TimeElapsedColumn(),
        console=to,
        transient=True,
        disable=not to.is_terminal,
    )


class Amount(ProgressColumn):
    """A progress column: how much of the total is done, in records or bytes; without a total, the bytes."""

    def render(self, task: Task) -> Text:
        if task.fields["by_records"] and task.total is not None:
            return Text(f"{int(task.completed):,}/{int(task.total):,}", style="green")
        done = size(int(task.fields["bytes"]))
        return Text(f"{done}/{size(int(task.total))}" if task.total else done, style="green")


class Rate(ProgressColumn):
    """A progress column: the number of records and records per second; bytes per second while there are no records."""

    def render(self, task: Task) -> Text:
        records = int(task.fields["records"])
        elapsed = task.elapsed or 0.001
        if records:
            return Text(f"{counted(records, 'record')}, {records / elapsed:,.0f}/s", style="cyan")
        return Text(f"{size(task.fields['bytes'] / elapsed)}/s", style="cyan")


class ProgressBar:
    """A counter of bytes and records, shown while standard error is a terminal, unless it is hidden, for instance because
    records go there, too. It has a bar if it knows a total: of bytes, or of records (`expect`).
    """

    def __init__(self, label: str, total_bytes: int | None = None, *, is_hidden: bool = False) -> None:
        self.bytes = 0
        self.records = 0
        to = console(err=True)
        self._progress = Progress(
            SpinnerColumn(),
            Label(max_width=16),
            BarColumn(bar_width=10),
            Amount(table_column=Column(no_wrap=True)),
            Rate(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(),
            Label("note", style="yellow"),
            console=to,
            transient=True,
            disable=is_hidden or not to.is_terminal,
        )
        self._task = self._progress.add_task(label, total=total_bytes, bytes=0, records=0, note="", by_records=False)

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def expect(self, records: int) -> None:
        """Shows a bar for so many records; `reach` moves it."""
        self._progress.update(self._task, total=records, by_records=True)

    def reach(self, records: int) -> None:
        """Moves the bar of records: so many are done, or were passed over."""
        self._progress.update(self._task, completed=records)

    def add_bytes(self, count: int) -> None:
        self.bytes += count
        is_bar_of_records = self._progress.tasks[0].fields["by_records"]
        self._progress.update(self._task, bytes=self.bytes, advance=0 if is_bar_of_records else count)

    def add_records(self, count: int) -> None:
        self.records += count
        self._progress.update(self._task, records=self.records, note="")

    def note_retry(self, reason: str, wait_s: float) -> None:
        self._progress.update(self._task, note=f"{reason}, again in {wait_s:.1f} s")


def open_output(path: Path | None) -> BinaryIO | nullcontext[BinaryIO]:
    """Opens where data goes: a file, or standard output. Raises BadInput if the file can't be written."""
    try:
        return path.open("wb") if path else nullcontext(output())
    except OSError as error:
        raise BadInput(f"can't write {path}: {error.strerror}") from error
