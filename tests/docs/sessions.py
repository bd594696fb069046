"""Commands that a page of the documentation shows, and what it says that they print.

Four forms are read. Indented by four columns: a session, whose commands begin with `$ ` and are followed by their output;
or commands alone, one per line, with a remark behind `  #`. Fenced as `bash`: commands, whose joint output may be shown by
an unnamed fence behind it. Fenced as `python` or `js`: a program, if an unnamed fence behind it shows what it prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

PROGRAMS = ("headrace", "./run", "uv", "npm", "npx", "aws", "curl", "echo", "sed", "tar")
INTERPRETERS = {"python": "uv run python -", "js": "node --input-type=module -"}
_INDENT = "    "
_PROMPT = "$ "
_ANY = "…"


@dataclass(frozen=True)
class Command:
    """A command at a line (from 1) of its page, and the lines that it is said to print."""

    line: int
    text: str
    output: tuple[str, ...]

    @property
    def is_look(self) -> bool:
        """Whether it only looks at stores. What such a command shows is there a moment later, so it may be asked again;
        any other one changes something, and what it prints the second time is not what the page shows.
        """
        return re.match(r"uv run python docs/examples/\w+\.py \w+\.json ", self.text) is not None

    @property
    def is_in_order(self) -> bool:
        """Whether the lines that it prints have an order: not if it runs several commands at a time."""
        return re.search(r"--concurrency (?!1\b)", self.text) is None


def commands(page: str) -> list[Command]:
    """Returns every command that a page shows, in its order."""
    lines = page.split("\n")
    found = [*_fenced(lines), *_indented(_without_fences(lines))]
    return sorted(found, key=lambda command: command.line)


def missing(expected: tuple[str, ...], printed: str, *, in_order: bool = True) -> str | None:
    """Returns the first line that was expected and not printed; None if there is none. Pure.

    They must come in this order, unless commands that run at the same time printed them.

    What differs from run to run counts as equal: see `_plain`. Lines between those expected do not matter, nor does what a
    line has in place of an ellipsis.
    """
    lines = [_plain(line) for line in printed.split("\n")]
    rest = iter(lines)
    for line in expected:
        if line.strip() == _ANY:
            continue
        pattern = ".*".join(re.escape(part.strip()) for part in _plain(line).split(_ANY))
        if not any(re.fullmatch(pattern, candidate) for candidate in (rest if in_order else lines)):
            return line
    return None


# What no two runs share: durations, rates, moments of this year on, random ids, and, in lines that tell of the work done,
# in how many pieces it came.
_VARIES = (
    (r"20(?:2[6-9]|[3-9]\d)-\d\d-\d\dT[\d:.]+Z", "<now>"),
    (r"\d{13}-[0-9a-f]{12}", "<run>"),
    (r"headrace-databucket\S+", "<bucket>"),
    (r'(?i)stream-?cursor"?: ?"?\d+"?', "<cursor>"),
    (r"[\d.,]+ (?:m?s\b|records/s)", "<took>"),
    (r"^([\w-]+): .* GMT$", r"\1: <now>"),
    (r"[\d.]+ [kM]?B\b", "<size>"),
    (r"\d+ segments?\b", "<pieces>"),
    (r"\b\d+/\d+\b.*", "<covered>"),
    (
        r"^([^\d…]*\b(?:ms|stages_ms|gets|bytes|ranges|runs|cache|scanned|level|records|family|explain|plan|index)\b.*)$",
        "<work>",
    ),
    (r"^[\W\d]+$", "<rule>"),
)


_BRANCH = re.compile(
    r"[│├└─\s]*[├└]── "
)  # of a tree, as `--explain` prints: where it hangs and its numbers depend on runs


def _plain(line: str) -> str:
    if branch := _BRANCH.match(line):
        line = re.sub(r"\d{13}-[0-9a-f]{12}|\d[\d.]*", "<n>", line[branch.end() :])
    for pattern, instead in _VARIES:
        line = re.sub(pattern, instead, line)
    return re.sub(r"\s+", " ", line).strip()


def _fenced(lines: list[str]) -> Iterator[Command]:
    for start, line in enumerate(lines):
        language = line.removeprefix("```")
        if language == line or language not in ("bash", *INTERPRETERS):
            continue
        end = lines.index("```", start + 1)
        text = "\n".join(lines[start + 1 : end])
        output: list[str] = []
        if lines[end + 1 : end + 2] == ["```"]:
            output = lines[end + 2 : lines.index("```", end + 2)]
        elif language in INTERPRETERS:
            continue
        if language in INTERPRETERS:
            text = f"{INTERPRETERS[language]} <<'END'\n{text}\nEND"
        yield Command(start + 2, text, tuple(output))


def _without_fences(lines: list[str]) -> list[str]:
    inside = False
    kept = []
    for line in lines:
        fence = line.startswith("```")
        inside = inside != fence
        kept.append("" if inside or fence else line)
    return kept


def _indented(lines: list[str]) -> Iterator[Command]:
    """Sessions and lists of commands. A block ends with the first line that is neither indented nor empty."""
    at = 0
    while at < len(lines):
        text = lines[at].removeprefix(_INDENT)
        if not lines[at].startswith(_INDENT) or not _begins(text):
            at += 1
            continue
        line = at + 1
        command = _without_remark(text.removeprefix(_PROMPT))
        while _goes_on(command):
            at += 1
            command += "\n" + _without_remark(lines[at].removeprefix(_INDENT))
        at += 1
        output = []
        if text.startswith(_PROMPT):
            while at < len(lines) and (lines[at].startswith(_INDENT) or not lines[at]):
                shown = lines[at].removeprefix(_INDENT)
                if shown.startswith(_PROMPT):
                    break
                if shown:
                    output.append(shown)
                at += 1
        yield Command(line, command, tuple(output))


def _begins(text: str) -> bool:
    return text.startswith(_PROMPT) or text.split(" ", 1)[0] in PROGRAMS


def _without_remark(text: str) -> str:
    return re.sub(r"  +# .*$", "", text)


def _goes_on(command: str) -> bool:
    """Returns whether a line ends with a backslash, or within quotes."""
    return command.endswith("\\") or command.count("'") % 2 == 1
