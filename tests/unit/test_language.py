"""The language of code and documents: no word that makes readers stumble, and docstrings that start with a verb."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PRODUCT = ("headrace", "functions", "emr_jobs", "infra", "cli", "operators", "local", "benchmarks")
BANNED = re.compile(
    r"\b(shall|anew|who(m)?ever|whereof|wherefrom|reckon\w*|dearer|as dear|begin of|the begin|who may not"
    r"|nobody can be asked|is it well|stands? there|stood there)\b",
    re.IGNORECASE,
)
# "To stand" for "to be". What stands for, stands in for or stands still may.
STANDS = re.compile(r"\b(stands|stood)\b(?!-| (for|in for|still|out|up))", re.IGNORECASE)
# The header of a section of a docstring, which has a line of its own, as each of the section's entries has.
SECTION = re.compile(r"(Args|Raises|Returns|Yields|Attributes)( \([^)]*\))?:")
JOINED = re.compile(rf"(\S {SECTION.pattern}|^{SECTION.pattern} ).|^    .*\. [A-Z]\w+(, [A-Z]\w+)*: [a-z]")
# A function's docstring starts with a verb in the third person, so none starts with an article or a question.
NO_VERB = frozenset(
    [
        "A",
        "All",
        "An",
        "As",
        "At",
        "Both",
        "By",
        "Each",
        "Every",
        "Everything",
        "For",
        "From",
        "How",
        "In",
        "Its",
        "None",
        "Not",
        "Of",
        "On",
        "One",
        "Some",
        "The",
        "Their",
        "Them",
        "These",
        "Those",
        "Two",
        "What",
        "When",
        "Where",
        "Whether",
        "Which",
        "Who",
        "Whose",
        "Why",
        "With",
        "Without",
    ]
)


def tracked(*patterns: str) -> list[Path]:
    """Returns the files of the repository that match."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split() if (ROOT / name).exists()]


class Documented(NamedTuple):
    """A docstring and what has it. `is_called` says that it is a function, and no property, which reads as a noun."""

    where: str
    docstring: str
    is_called: bool


@cache
def documented() -> tuple[Documented, ...]:
    """Returns the docstrings of the product."""
    found = []
    for path in tracked(*(f"{folder}/*.py" for folder in PRODUCT)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                decorators = {
                    getattr(one, "id", getattr(one, "attr", "")) for one in getattr(node, "decorator_list", ())
                }
                is_called = is_function and not {"property", "cached_property"} & decorators
                where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
                found.append(Documented(where, ast.get_docstring(node) or "", is_called))
    return tuple(found)


def test_no_banned_word() -> None:
    files = [path for path in tracked("*.py", "*.md", "*.toml", "run") if path != Path(__file__)]
    assert len(files) > 500
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for match in (*BANNED.finditer(line), *STANDS.finditer(line))
    ]
    assert not found, "\n".join(found)


def test_sections_of_docstrings_keep_their_lines() -> None:
    lines = [(one.where, line) for one in documented() for line in one.docstring.splitlines()]
    assert sum(bool(SECTION.fullmatch(line)) for _, line in lines) > 300
    found = [f"{where}: {line}" for where, line in lines if JOINED.search(line)]
    assert not found, "\n".join(found)


def test_docstrings_of_functions_start_with_a_verb() -> None:
    functions = [one for one in documented() if one.is_called and one.docstring]
    assert len(functions) > 1500
    found = [
        f"{one.where}: {one.docstring.splitlines()[0]}"
        for one in functions
        if one.docstring.split()[0].rstrip(",.:;") in NO_VERB
    ]
    assert not found, "\n".join(found)
