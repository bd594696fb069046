"""Every normative sentence of the two contracts has black-box tests, and they passed in this session.

`coverage.csv` has a row for each: `source` (`http` or `schemas`, or what else demands it), `section`, `lines` of the
contract's text, the sentence in short, its tests (`file.py::test`, several with a space between), a note where a decision
stands behind what is tested.

A row passes if all its tests ran and passed, each in every configuration that ran. If none of them was meant to run (`-k`,
or a file named on the command line) the row is reported as skipped.
"""

from __future__ import annotations

import ast
import csv
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conformance.conftest import CONTRACT, OUTCOMES

TABLE = Path(__file__).parent / "coverage.csv"
SOURCES = {"http", "schemas", "digest", "peer bugs", "issue"}


class Row(NamedTuple):
    """One sentence."""

    id: str
    source: str
    section: str
    lines: str
    sentence: str
    tests: tuple[str, ...]
    note: str


@cache
def rows() -> tuple[Row, ...]:
    """The table. Raises ValueError when a line has too few or too many cells."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    if header != list(Row._fields):
        raise ValueError(f"the table's columns are not as expected: {header}")
    if wrong := [line for line in lines if len(line) != len(header)]:
        raise ValueError(f"lines of another length: {wrong}")
    return tuple(Row(line[0], line[1], line[2], line[3], line[4], tuple(line[5].split()), line[6]) for line in lines)


@cache
def contract_tests() -> frozenset[str]:
    """Every test function in the folder, as `file.py::test`."""
    return frozenset(
        f"{path.name}::{node.name}"
        for path in CONTRACT.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def verdict(row: Row, known: frozenset[str], outcomes: dict[str, list[str]]) -> str:
    """`passed`, `not run`, or what is wrong with the row."""
    if not row.tests:
        return "names no test"
    if unknown := [name for name in row.tests if name not in known]:
        return f"names tests that do not exist: {unknown}"
    if bad := {name: outcomes[name] for name in row.tests if set(outcomes.get(name, ["passed"])) != {"passed"}}:
        return f"its tests did not pass: { {name: dict(Counter(all_of)) for name, all_of in bad.items()} }"
    if any(not outcomes.get(name) for name in row.tests):
        return "not run"
    return "passed"


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in rows()])
def test_the_sentence_has_tests_that_passed(row: Row, request: pytest.FixtureRequest) -> None:
    found = verdict(row, contract_tests(), request.config.stash[OUTCOMES])
    if found == "not run":
        pytest.skip("not judged: its tests were not all part of this session")
    assert found == "passed", f"{row.id} ({row.source}, {row.section}, lines {row.lines}): {row.sentence}: {found}"


def test_the_table_is_well_formed() -> None:
    assert [name for name, count in Counter(row.id for row in rows()).items() if count > 1] == []
    assert {row.source for row in rows()} <= SOURCES
    assert [row.id for row in rows() if not (row.section and row.sentence)] == []


def test_no_test_of_the_contract_is_left_out_of_the_table() -> None:
    assert contract_tests() - {name for row in rows() for name in row.tests} == set()


@pytest.mark.parametrize(
    ("tests", "outcomes", "expected"),
    [
        ("a.py::test_x", {"a.py::test_x": ["passed", "passed"]}, "passed"),
        ("a.py::test_x", {}, "not run"),
        ("a.py::test_x a.py::test_y", {"a.py::test_x": ["passed"]}, "not run"),
        ("a.py::test_x", {"a.py::test_x": ["passed", "failed"]}, "did not pass"),
        ("a.py::test_x", {"a.py::test_x": ["passed", "skipped"]}, "did not pass"),
        ("a.py::test_x a.py::test_y", {"a.py::test_y": ["failed"]}, "did not pass"),
        ("a.py::test_z", {}, "do not exist"),
        ("", {}, "names no test"),
    ],
)
def test_a_row_is_never_passed_by_mistake(tests: str, outcomes: dict[str, list[str]], expected: str) -> None:
    row = Row("r", "http", "s", "1", "sentence", tuple(tests.split()), "")
    assert expected in verdict(row, frozenset({"a.py::test_x", "a.py::test_y"}), outcomes)
