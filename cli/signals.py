"""Interrupts: SIGTERM ends a command as Ctrl-C does, and the message says which command goes on."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

ARGUMENTS = "headrace.arguments"
"""The name in a context's `meta` of what the command line has behind the program's name."""


@contextmanager
def terminable() -> Iterator[None]:
    """Raises KeyboardInterrupt in the block when SIGTERM comes."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def command_line(*more: str) -> str:
    """Returns the command that runs, as a shell takes it, with more arguments behind it. Of a key nothing is shown."""
    context = click.get_current_context()
    shown = ["headrace"]
    is_key = False
    for argument in context.meta.get(ARGUMENTS, []):
        if is_key:
            shown.append("…")
        elif argument.startswith("--key="):
            shown.append("--key=…")
        else:
            shown.append(shlex.quote(argument))
        is_key = argument == "--key" and not is_key
    return " ".join([*shown, *map(shlex.quote, more)])
