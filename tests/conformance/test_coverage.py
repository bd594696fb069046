"""The tables of the contracts' sentences are sound, and their judges fail the sessions that they must."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.conformance.coverage import EXCUSE, FEATURES, NAME, TABLES, TOPICS, Row, read_rows, verdict

SOURCES = {"http", "schemas", "register", "digest", "peer bugs", "issue"}


FOLDERS = pytest.mark.parametrize("folder", TABLES, ids=lambda folder: folder.name)


@cache
def contract_tests(folder: Path) -> frozenset[str]:
    """Returns every test function in the folder, as `file.py::test`."""
    return frozenset(
        f"{path.name}::{node.name}"
        for path in folder.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


@FOLDERS
def test_the_table_is_well_formed(folder: Path) -> None:
    rows = read_rows(TABLES[folder])
    assert [name for name, count in Counter(row.id for row in rows).items() if count > 1] == []
    assert {row.source for row in rows} <= SOURCES
    assert [row.id for row in rows if not (row.section and row.sentence)] == []
    # A row has tests, or a reason for having none.
    assert [row.id for row in rows if bool(row.tests) == row.note.startswith(EXCUSE)] == []


@FOLDERS
def test_table_and_folder_name_the_same_tests(folder: Path) -> None:
    assert contract_tests(folder) == {name for row in read_rows(TABLES[folder]) for name in row.tests}


@pytest.mark.parametrize(("folder", "source", "last"), [(TOPICS, "http", 1281), (FEATURES, "register", 72)])
def test_no_line_of_the_contract_is_left_out(folder: Path, source: str, last: int) -> None:
    covered: set[int] = set()
    for row in read_rows(TABLES[folder]):
        if row.source == source:
            first, _, end = row.lines.partition("-")
            covered.update(range(int(first), int(end or first) + 1))
    assert set(range(1, last + 1)) == covered


@pytest.mark.parametrize(
    ("tests", "outcomes", "expected"),
    [
        ("a.py::test_x", {"a.py::test_x": ["passed", "passed"]}, "passed"),
        ("a.py::test_x", {}, "not run"),
        ("a.py::test_x a.py::test_y", {"a.py::test_x": ["passed"]}, "not run"),
        ("a.py::test_x", {"a.py::test_x": ["passed", "failed"]}, "did not pass"),
        ("a.py::test_x", {"a.py::test_x": ["passed", "skipped"]}, "did not pass"),
        ("a.py::test_x a.py::test_y", {"a.py::test_y": ["failed"]}, "did not pass"),
        ("", {}, "names no test"),
    ],
)
def test_a_row_is_never_passed_by_mistake(tests: str, outcomes: dict[str, list[str]], expected: str) -> None:
    row = Row("r", "http", "s", "1", "sentence", tuple(tests.split()), "")
    assert expected in verdict(row, outcomes)


def test_a_row_without_tests_needs_a_reason() -> None:
    row = Row("r", "http", "s", "1", "sentence", (), EXCUSE + "not ours")
    assert verdict(row, {}) == "excused"
    assert verdict(row._replace(note="decided: otherwise"), {}) == "names no test"


@FOLDERS
def test_every_session_has_the_judge(request: pytest.FixtureRequest, folder: Path) -> None:
    assert request.config.pluginmanager.has_plugin(f"{NAME}: {folder.name}")


CONFTEST = """
from pathlib import Path
from tests.conformance.coverage import Judge

HERE = Path(__file__).parent

def pytest_configure(config):
    config.pluginmanager.register(Judge(config, HERE / "contract", HERE / "coverage.csv"))
"""
TESTS = """
import pytest

def test_x():
    pass

@pytest.mark.parametrize("number", [1, 2])
def test_y(number):
    {body}
"""


PASSING = ("pass", "test_a.py::test_x test_a.py::test_y", (), False, "1 of 1 sentences")
FAILING = ("assert number == 1", "test_a.py::test_y", (), True, "'failed': 1")
NOT_RUN = ("pass", "test_a.py::test_x test_a.py::test_z", (), True, "not run: test_a.py::test_z")


@pytest.mark.parametrize(
    ("body", "table", "arguments", "is_failed", "says"),
    [
        PASSING,
        FAILING,
        NOT_RUN,
        ("number == 1 or pytest.skip('no')", "test_a.py::test_y", ("contract",), True, "'skipped': 1"),
        ("number == 1 or pytest.xfail('no')", "test_a.py::test_y", (), True, "'skipped': 1"),
        ("pass", "test_a.py::test_x test_b.py::test_x", ("contract",), True, "not run: test_b.py::test_x"),
        ("pass", "test_a.py::test_x test_a.py::test_y", ("-k", "test_x"), False, "0 of 1 sentences"),
        ("pass", "test_a.py::test_z", ("contract/test_a.py",), False, "0 of 1 sentences"),
        *[(*case[:2], ("-n", "2"), *case[3:]) for case in (PASSING, FAILING, NOT_RUN)],
    ],
)
def test_a_session_passes_only_with_the_table(
    tmp_path: Path, body: str, table: str, arguments: tuple[str, ...], is_failed: bool, says: str
) -> None:
    (tmp_path / "contract").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "contract" / "test_a.py").write_text(TESTS.format(body=body))
    (tmp_path / "coverage.csv").write_text(f"{','.join(Row._fields)}\nr-1,http,s,1,a sentence,{table},\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # the others take a second to import
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert says in done.stdout, done.stdout + done.stderr
    assert done.returncode == int(is_failed), done.stdout
