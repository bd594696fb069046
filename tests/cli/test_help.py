"""Every command's help fits a terminal of 80 columns, and its examples can be pasted."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from cli.help import FittingFormatter
from cli.main import main


def commands(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """Yields a context for a command and for each below it."""
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, below.context_class(below, info_name=name, parent=context))


def test_every_help_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    too_long, count = [], 0
    for context in commands(main, main.context_class(main, info_name="headrace")):
        shown = context.get_help()
        count += 1
        too_long += [line for line in shown.splitlines() if len(line) > 80]
        epilog = (context.command.epilog or "").replace(" \\\n", " ")
        examples = [
            line.partition("  # ")[0].strip() for line in epilog.splitlines() if line.startswith("  headrace ")
        ]
        joined = re.sub(r" \\\n +", " ", shown)
        assert [line for line in examples if re.sub(" +", " ", line) not in re.sub(" +", " ", joined)] == []
    assert not too_long and count > 60


def fitted(text: str, width: int = 40) -> str:
    formatter = FittingFormatter(width=width)
    formatter.write_text(text)
    return formatter.getvalue()


def test_paragraphs_whose_lines_are_kept_are_wrapped_as_what_they_are() -> None:
    text = """A paragraph that click wraps by itself, as ever.

\b
Examples:
  headrace read s
  headrace read orders --from 12345  # that append printed
  headrace read s --format lines | jq '.a | .b --c'

\b
A paragraph that is much longer than
forty columns, so its lines are joined:
  one    what is said of it, which is long and
         goes on
  two    short
  - an item that is too long for its line
"""
    assert fitted(text) == (
        "A paragraph that click wraps by itself,\nas ever.\n\nExamples:\n  headrace read s\n"
        "  # that append printed\n  headrace read orders --from 12345\n"
        "  headrace read s --format lines \\\n      | jq '.a | .b --c'\n\n"
        "A paragraph that is much longer than\nforty columns, so its lines are joined:\n"
        "  one    what is said of it, which is\n         long and goes on\n  two    short\n"
        "  - an item that is too long for its\n    line\n"
    )


def test_what_fits_is_left_as_it_is() -> None:
    text = "\b\nA title:\n  a\n  b\n  c    d\nand more\n"
    assert fitted(text, 80) == text.removeprefix("\b\n")
