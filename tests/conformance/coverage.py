"""Every normative sentence of the contracts has black-box tests that pass.

`coverage.csv` (of streams), `topics/coverage.csv` and `features/coverage.csv` have a row for each: `source` (`http`,
`schemas` or `register`, or what else demands it), `section`, `lines` of the contract's text, the sentence in short, its
tests (`file.py::test`, several with a space between), a note where a decision explains what is tested. A row without tests
has a note that begins with `excused: ` and says why.

A row passes if all its tests passed, each in every configuration that was asked. A session fails when one of a row's tests
did not pass; and also when one was not run, if the session was asked for the whole contract.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

CONTRACT = Path(__file__).parent / "contract"
TABLE = Path(__file__).parent / "coverage.csv"
TOPICS = Path(__file__).parent / "topics"
FEATURES = Path(__file__).parent / "features"
TABLES = {  # of the folders that have one
    CONTRACT: TABLE,
    TOPICS: TOPICS / "coverage.csv",
    FEATURES: FEATURES / "coverage.csv",
}
NARROWING = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise", "collectonly")
NAME = "coverage of the contract"
EXCUSE = "excused: "


class Row(NamedTuple):
    """One sentence."""

    id: str
    source: str
    section: str
    lines: str
    sentence: str
    tests: tuple[str, ...]
    note: str


def read_rows(table: Path = TABLE) -> tuple[Row, ...]:
    """Returns the table's rows. Raises ValueError when a line has too few or too many cells."""
    with table.open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    if header != list(Row._fields):
        raise ValueError(f"the table's columns are not as expected: {header}")
    if wrong := [line for line in lines if len(line) != len(header)]:
        raise ValueError(f"lines of another length: {wrong}")
    return tuple(Row(line[0], line[1], line[2], line[3], line[4], tuple(line[5].split()), line[6]) for line in lines)


def verdict(row: Row, outcomes: Mapping[str, list[str]]) -> str:
    """Returns `passed`, `excused`, `not run: …`, or what is wrong with a row."""
    if not row.tests:
        return "excused" if row.note.startswith(EXCUSE) else "names no test"
    if bad := {name: outcomes[name] for name in row.tests if set(outcomes.get(name, ["passed"])) != {"passed"}}:
        return f"its tests did not pass: { {name: dict(Counter(all_of)) for name, all_of in bad.items()} }"
    if missing := [name for name in row.tests if not outcomes.get(name)]:
        return f"not run: {', '.join(missing)}"
    return "passed"


class Judge:
    """A pytest plugin that remembers the outcome of each test of the contract and judges the rows when the session ends.

    It judges in the process that hears of all tests: with pytest-xdist, the one that hands them out.
    """

    def __init__(self, config: pytest.Config, folder: Path = CONTRACT, table: Path = TABLE) -> None:
        self._config = config
        self._folder = folder
        self._table = table
        self._outcomes: dict[str, list[str]] = defaultdict(list)
        self._lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        path, _, test = report.nodeid.partition("::")
        if (self._config.rootpath / path).parent != self._folder:
            return
        # A test passed if its call did and nothing around it failed. Expected failures and skips are not passes.
        passed = report.passed and not hasattr(report, "wasxfail")
        if report.when == "call" or not passed:
            name = f"{Path(path).name}::{test.partition('[')[0]}"
            self._outcomes[name].append("passed" if passed else report.outcome)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self._config, "workerinput") or not (self._outcomes or self._is_whole()):
            return
        verdicts = [(row, verdict(row, self._outcomes)) for row in read_rows(self._table)]
        wrong = [
            f"{row.id} ({row.source}, {row.section}, lines {row.lines}): {row.sentence}: {said}"
            for row, said in verdicts
            if said not in ("passed", "excused") and (self._is_whole() or not said.startswith("not run"))
        ]
        passed, excused = (sum(said == wanted for _, said in verdicts) for wanted in ("passed", "excused"))
        self._lines = [
            f"{self._folder.name}: {passed} of {len(verdicts)} sentences have tests that passed in this session, "
            f"{excused} have a reason for having none",
            *wrong,
        ]
        if wrong:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._lines:
            return
        terminalreporter.section(NAME)
        head, *wrong = self._lines
        terminalreporter.write_line(head)
        for line in wrong:
            terminalreporter.write_line(f"NOT COVERED {line}", red=True)

    def _is_whole(self) -> bool:
        """Returns whether the session was asked for the whole folder: a path above it, and no option that leaves
        tests out.
        """
        if any(self._config.getoption(name, None) for name in NARROWING):
            return False
        asked = [(self._config.invocation_params.dir / argument).resolve() for argument in self._config.args]
        return any(path == self._folder or path in self._folder.parents for path in asked)
