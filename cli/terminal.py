"""Everything that the commands print goes through this module, so that no text of a server, a stream or a file can
steer the terminal: move the cursor, clear lines, change the title, answer in the user's place.

    say       a line for people, on standard output or standard error: control characters become escapes, always
    output    where records and documents go: exact bytes to a file or pipe; a terminal gets escapes
    console   for tables and progress (rich), whose texts the caller has cleaned (`clean`)
"""

from __future__ import annotations

import io
import re
import shutil
import sys
from textwrap import wrap
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

if TYPE_CHECKING:
    from rich.console import Console

# C0, DEL and C1; what else breaks a line; and surrogates, which have no bytes.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# The same but for the characters that lay out text.
_UNSAFE = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def clean(text: str) -> str:
    """Replaces control characters by escapes as in JSON, so that text can neither move the cursor nor break a row."""
    return _CONTROL.sub(_escaped, text)


def say(text: object = "", *, err: bool = False) -> None:
    """Prints one line for people, cleaned; on standard error if `err`."""
    click.echo(clean(str(text)), err=err)


def say_beside(lead: str, text: str) -> None:
    """Prints a line for people, which on a terminal goes on below `text`, if that is too long."""
    if not is_terminal():
        say(lead + text)
        return
    width = shutil.get_terminal_size().columns
    lines = wrap(clean(text), max(width - len(lead), 20), break_long_words=False, break_on_hyphens=False) or [""]
    for number, line in enumerate(lines):
        say((" " * len(lead) if number else lead) + line)


def output(*, err: bool = False) -> BinaryIO:
    """Returns standard output, or standard error, for data. To a terminal, control characters other than tabs and line
    ends are written as escapes: JSON stays the same JSON, since it has them in strings only.
    """
    stream = sys.stderr if err else sys.stdout
    return cast(BinaryIO, _CleanedOutput(stream.buffer)) if stream.isatty() else stream.buffer


def print_document(data: bytes, *, err: bool = False) -> None:
    """Prints a JSON document and a line end, as data."""
    out = output(err=err)
    out.write(data + b"\n")
    out.flush()


def is_terminal() -> bool:
    """Returns whether somebody looks at standard output."""
    return sys.stdout.isatty()


def console(*, err: bool = False) -> Console:
    """Returns a rich console for standard output or standard error, wide enough for a whole row if that is no terminal."""
    from rich.console import Console  # takes 50 ms that most commands do not need

    found = Console(highlight=False, markup=False, stderr=err)
    if not found.is_terminal:
        found.width = 1000  # a pipe has no width: keep a row on a line
    return found


class _CleanedOutput(io.BufferedIOBase):
    """An output to a terminal. Bytes that are not UTF-8 are shown as escapes, too."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, data: Any) -> int:
        self._out.write(_UNSAFE.sub(_escaped, bytes(data).decode(errors="backslashreplace")).encode())
        return len(data)

    def flush(self) -> None:
        self._out.flush()


def _escaped(found: re.Match[str]) -> str:
    return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}"
