r"""Help that fits the terminal. click wraps the paragraphs of a help text but for those that begin with `\b`, which have
lines of their own: examples, and lists in columns. These are wrapped here, each as what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap

import click

_VERBATIM = "\b\n"
_COMMAND = re.compile(r"\s*(?:headrace |curl |tail -)")
_REMARK = re.compile(r"(.*\S)\s+# (.*)")
_COLUMNS = re.compile(r"\s*(?:- |(?:\S+ )*\S+  +)(?=\S)")
_BREAK = re.compile(r""" (?=--|-[HXd] |\||&&)(?=(?:[^'"]|'[^']*'|"[^"]*")*$)""")
"""Where a command may go on in the next line: not inside quotes."""
_MORE = " \\"


class FittingFormatter(click.HelpFormatter):
    """A formatter of help whose examples and lists are no wider than the rest."""

    def write_text(self, text: str) -> None:
        width = max(self.width - self.current_indent, 11)
        paragraphs = re.sub(f"(?<!\n)\n{_VERBATIM}", f"\n\n{_VERBATIM}", text).split("\n\n")
        super().write_text("\n\n".join(_fit(paragraph, width) for paragraph in paragraphs))


class FittingContext(click.Context):
    """The context of a command whose help fits the terminal."""

    formatter_class = FittingFormatter


@dataclass
class _Item:
    """Lines that belong together: the text, what its first line begins with, and the indent of the others."""

    lead: str
    indent: int
    text: str


def _fit(paragraph: str, width: int) -> str:
    """Returns a paragraph of help; one whose lines are kept, and of which one is too long, has shorter ones."""
    if not paragraph.startswith(_VERBATIM):
        return paragraph
    lines = paragraph.removeprefix(_VERBATIM).split("\n")
    if max(map(len, lines)) <= width:
        return paragraph
    return _VERBATIM + "\n".join(line for item in _items(lines) for line in _wrapped(item, width))


def _items(lines: list[str]) -> Iterator[_Item]:
    """Joins the lines of a paragraph or of a list's item, and yields what is to be wrapped by itself."""
    item: _Item | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        columns = _COLUMNS.match(line)
        is_under_title = item is not None and item.text.endswith(":") and not item.lead.strip()
        is_own = _COMMAND.match(line) or columns or is_under_title
        if item is not None and not is_own and indent == item.indent:
            item.text += " " + line.strip()
            continue
        if item is not None:
            yield item
        lead = line[: columns.end()] if columns and not _COMMAND.match(line) else line[:indent]
        item = _Item(lead, len(lead), line[len(lead) :].rstrip())
        if _COMMAND.match(line):
            yield item
            item = None
    if item is not None:
        yield item


def _wrapped(item: _Item, width: int) -> list[str]:
    line = item.lead + item.text
    if len(line) <= width:
        return [line]
    if not _COMMAND.match(line):
        return wrap(
            item.text, width, initial_indent=item.lead, subsequent_indent=" " * item.indent,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    if remark := _REMARK.fullmatch(line):
        return [f"{item.lead}# {remark[2]}", *_wrapped(_Item(item.lead, item.indent, remark[1].strip()), width)]
    words = _BREAK.split(item.text)
    shown = [item.lead + words[0]]
    for word in words[1:]:
        if len(shown[-1]) + 1 + len(word) + len(_MORE) <= width:
            shown[-1] += " " + word
        else:
            shown[-1] += _MORE
            shown.append(f"{item.lead}    {word}")
    return shown
