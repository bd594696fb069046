"""Fuzzes the parsers of outside bytes, guided by coverage.

    python -m tests.fuzz [TARGET ...] [--executions N] [--seconds N] [--keep]    all targets without a name
    python -m tests.fuzz TARGET --replay FILE                                    one input, such as a finding

Needs atheris (`uv run --with atheris==3.0.0 python -m tests.fuzz …`) except for a replay. Exits with 1 if a law broke.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz import reduce
from tests.fuzz.engine import Outcome, fuzz
from tests.fuzz.targets import TARGETS

ATHERIS = "atheris==3.0.0"


def main(arguments: list[str]) -> int:
    """Runs what the arguments ask for; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--executions", type=int, default=1_000_000, help="of each target (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=0, help="the longest that a target runs (default: no limit)")
    parser.add_argument("--seed", type=int, default=1, help="of the engine's randomness (default: %(default)s)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input and raise what it raises")
    parser.add_argument("--keep", action="store_true", help="add to the committed corpus what reaches further")
    given = parser.parse_args(arguments)
    wanted = given.targets or list(TARGETS)
    unknown = [name for name in wanted if name not in TARGETS]
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    if given.replay:
        for name in wanted:
            TARGETS[name](given.replay.read_bytes())
        return 0
    if importlib.util.find_spec("atheris") is None:
        print(f"fuzzing needs atheris: uv run --with {ATHERIS} python -m tests.fuzz", file=sys.stderr)
        return 2
    return _run(wanted, given.executions, given.seconds, given.seed, keep=given.keep)


def _run(wanted: list[str], executions: int, seconds: int, seed: int, *, keep: bool) -> int:
    findings = Path(tempfile.mkdtemp(prefix="headrace-fuzz-"))

    def hunt(name: str) -> Outcome:
        with tempfile.TemporaryDirectory() as grown:
            started = time.monotonic()
            corpus = [Path(grown), reduce.CORPUS / name]
            outcome = fuzz(name, executions, seconds, seed, corpus=corpus, findings=findings)
            took_s = time.monotonic() - started
            over = "\r" if sys.stdout.isatty() else ""  # the progress is on this line
            kept = f"\n  kept in the corpus: {reduce.keep(name, Path(grown))}" if keep else ""
            print(f"{over}{_line(outcome)}  ({took_s:.0f} s){kept}", flush=True)
            return outcome

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each target is a process of its own
        outcomes = list(pool.map(hunt, wanted))
    broken = [outcome for outcome in outcomes if outcome.finding is not None]
    done = sum(outcome.executions for outcome in outcomes)
    print(f"{len(outcomes)} targets, {done:,} executions, {len(broken)} findings")
    for outcome in broken:
        print(f"\n{outcome.name}: {outcome.reason}\n  python -m tests.fuzz {outcome.name} --replay {outcome.finding}")
    return 1 if broken else 0


def _line(outcome: Outcome) -> str:
    verdict = "law broken" if outcome.finding else "ok"
    return (
        f"{outcome.name:<14} {outcome.executions:>10,} executions {outcome.per_second:>8,}/s "
        f"{outcome.features:>6,} features {outcome.new_inputs:>5,} new inputs {outcome.peak_mb:>5} MB  {verdict}"
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
