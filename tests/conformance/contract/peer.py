"""Runs the laws of `test_peer_*bugs.py` on the npm peer and writes down which of them it breaks.

    uv run python -m tests.conformance.contract.peer --record tests/conformance/contract/peer_bugs.md

Ends with 1 if a law could not be judged there, or if the peer keeps a law that is recorded as broken: then the peer has
changed, or the test proves nothing.
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from benchmarks.peers.servers import running
from tests.conformance.contract.client import SetupFailed
from tests.conformance.contract.stages import SEGMENT

PEER = "@prisma/streams-server"
HERE = Path(__file__).parent
KEPT = frozenset({"test_has_does_not_find_null"})  # it breaks this one in `_search` only
LAWS = ("test_peer_bugs.py", "test_peer_search_bugs.py")
SETTINGS = {  # small segments, and indexes at once: with its defaults they come after 16 segments of 100,000 records
    "DS_SEGMENT_TARGET_ROWS": str(SEGMENT),
    "DS_SEGMENT_CHECK_MS": "100",
    "DS_INDEX_L0_SPAN": "1",
    "DS_INDEX_CHECK_MS": "200",
    "DS_SEARCH_WAL_OVERLAY_QUIET_MS": "100",
}


class Verdict(NamedTuple):
    """What became of one law: `broken`, `kept`, or why it could not be judged."""

    law: str
    outcome: str
    evidence: str = ""


class Judge:
    """A pytest plugin that tells a broken law from a test that could not begin."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Looks on; pytest makes its own report."""
        if call.when != "call" and call.excinfo is None:
            return
        law = item.nodeid.rpartition("::")[2].replace("given-server", "").replace("[]", "").replace("[-", "[")
        if call.excinfo is None:
            self.verdicts.append(Verdict(law, "kept"))
        elif call.when == "call" and not call.excinfo.errisinstance(SetupFailed):
            broken = call.excinfo.errisinstance(AssertionError)
            evidence = str(call.excinfo.value).splitlines()[0]
            self.verdicts.append(Verdict(law, "broken" if broken else "not judged", evidence))
        else:
            self.verdicts.append(Verdict(law, "not judged", str(call.excinfo.value)[:300]))


def judge(url: str) -> list[Verdict]:
    """Runs the laws against the server at `url`; returns the verdicts."""
    os.environ["HEADRACE_CONTRACT_URL"] = url
    plugin = Judge()
    files = [str(HERE / name) for name in LAWS]
    pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", "--tb=no", *files], [plugin])
    return plugin.verdicts


def surprises(verdicts: list[Verdict]) -> list[str]:
    """Laws that could not be judged, and those of which no case is broken although one should be."""
    outcomes: dict[str, set[str]] = defaultdict(set)
    for verdict in verdicts:
        outcomes[verdict.law.partition("[")[0]].add(verdict.outcome)
    return [
        f"{law}: {sorted(found)}"
        for law, found in outcomes.items()
        if "not judged" in found or ("broken" in found) == (law in KEPT)
    ]


def table(verdicts: list[Verdict]) -> str:
    """Returns the verdicts as a page of Markdown."""
    rows = [f"| {law} | {outcome} | {cell(evidence)} |" for law, outcome, evidence in verdicts]
    head = [f"# Laws that {PEER} 0.1.11 breaks", "", "Written by `python -m tests.conformance.contract.peer`.", ""]
    return "\n".join([*head, "| law | there | what it answered |", "| --- | --- | --- |", *rows]) + "\n"


def cell(text: str) -> str:
    """Text that fits into a cell, without what is another one in each run."""
    return re.sub(r"http://[\d.:]+|(?<=t-)[0-9a-f]{12}", "", text).replace("|", "\\|")[:160]


@click.command()
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), help="Write the table to this file.")
def main(record: Path | None) -> None:
    """Judge the peer."""
    with running(PEER, SETTINGS) as url:
        verdicts = judge(url)
    text = table(verdicts)
    click.echo(text)
    if record:
        record.write_text(text)
    found = surprises(verdicts)
    for line in found:
        click.echo(f"not as expected: {line}", err=True)
    sys.exit(1 if found or not verdicts else 0)


if __name__ == "__main__":
    main()
