"""What each folder of tests costs, and that none costs much more than `budgets.toml` says.

The measure is CPU time, of the tests and of every process that they start. Unlike the time that passes, it hardly depends
on what else the machine does.
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

TABLE = Path(__file__).parent / "budgets.toml"
TICKS = os.sysconf("SC_CLK_TCK")


def read_table() -> tuple[dict[str, float], float]:
    """Returns the CPU seconds that each folder may take on the reference machine, and the tolerated factor."""
    table = tomllib.loads(TABLE.read_text())
    return table["cpu_seconds"], table["tolerated_factor"]


def folder_of(nodeid: str) -> str:
    """Returns the folder below `tests` that a test is in."""
    return nodeid.removeprefix("tests/").partition("/")[0]


def is_last(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Returns whether a test is the last one of its folder in this process."""
    return nextitem is None or folder_of(nextitem.nodeid) != folder_of(item.nodeid)


def cpu_seconds() -> float:
    """Returns the CPU time that this process and all of its descendants have used, ended ones included."""
    processes = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        processes[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    total, waiting = 0.0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += processes[pid][1] if pid in processes else 0.0
        waiting += children.get(pid, ())
    return total


class Budget:
    """A pytest plugin that adds up CPU time by folder and fails a session in which a folder is too expensive."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._spent: Counter[str] = Counter()
        self._read_at = 0.0
        self._before_teardown = 0.0

    def pytest_collection_finish(self) -> None:
        self._read_at = cpu_seconds()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Reads what a folder has spent before its browser ends, which does not leave all of its time to a parent."""
        if is_last(item, nextitem):
            self._before_teardown = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        result = yield
        if is_last(item, nextitem):
            now = cpu_seconds()
            self._spent[folder_of(item.nodeid)] += max(0.0, max(now, self._before_teardown) - self._read_at)
            self._read_at = now
        return result

    def pytest_testnodedown(self, node: object) -> None:
        """Adds what a process of pytest-xdist has spent."""
        self._spent.update(getattr(node, "workeroutput", {}).get("cpu_seconds", {}))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._is_worker:
            self._config.workeroutput["cpu_seconds"] = dict(self._spent)  # type: ignore[attr-defined]
        elif self._excesses():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _excesses(self) -> list[str]:
        if self._config.getoption("full"):
            return []
        budgets, factor = read_table()
        return [
            f"tests/{folder} took {spent:.0f} s of CPU: more than {factor} times its budget of {budgets[folder]} s"
            for folder, spent in sorted(self._spent.items())
            if folder in budgets and spent > factor * budgets[folder]
        ]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if sum(self._spent.values()) >= 10 or self._excesses():
            spent = ", ".join(f"{folder} {seconds:.0f} s" for folder, seconds in self._spent.most_common())
            terminalreporter.section("CPU time by folder")
            terminalreporter.write_line(spent)
        for excess in self._excesses():
            terminalreporter.write_line(excess, red=True)
