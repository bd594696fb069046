"""Runs seeds, replays one, or hunts mutants. See --help."""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace

from tests.simulation import mutants, relay
from tests.simulation.faults import least, table
from tests.simulation.plan import FOLLOW, STAGED, Plan, make
from tests.simulation.run import Verdict, run
from tests.simulation.shrink import smallest

ENOUGH = 10  # times that each pair of store call and fault must be met ...
MANY = 5_000  # ... in a run of at least so many seeds
SHOWN = 5
_CHUNK = 20
_STUCK_S = 120  # one seed takes a tenth of a second: a run that never ends shows where it hangs


def main() -> int:
    """Runs what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--operations", type=int, default=200, help="operations in each")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--trace", action="store_true", help="with --seed: show every store call")
    parser.add_argument("--keep", help="with --seed: the operations to run, such as 0-3,7")
    parser.add_argument("--calm", default="", help="with --seed: faults to leave out, such as 7:2,9:1")
    parser.add_argument("--mutant", choices=sorted(mutants.ALL), help="run on a broken variant")
    parser.add_argument(
        "--mutants", action="store_true", help="hunt every mutant (--seeds: at most so many for each)"
    )
    parser.add_argument(
        "--write", action="store_true", help="with --mutants: write where they were found into the docs"
    )
    given = parser.parse_args()
    mutant = mutants.ALL[given.mutant] if given.mutant else None
    if mutant is not None and mutant.world:
        seeds = (
            range(given.first, given.first + given.seeds) if given.seed is None else range(given.seed, given.seed + 1)
        )
        return int(relay.run_many(mutant.world, seeds, given.workers, mutant.name) > 0)
    if given.seed is not None:
        return _one(_plan(given), mutant, given.trace, shrink=given.keep is None)
    if given.mutants:
        return _hunt(given)
    return _many(given, mutant)


def _plan(given: argparse.Namespace) -> Plan:
    plan = make(given.seed, given.operations)
    if given.keep is not None:
        kept = _numbers(given.keep)
        plan = plan.with_ops(tuple(op for op in plan.ops if op.id in kept))
    pairs = (pair.split(":") for pair in given.calm.split(",") if pair)
    return replace(plan, calm=frozenset((int(op), int(call)) for op, call in pairs))


def _one(plan: Plan, mutant: mutants.Mutant | None, trace: bool, *, shrink: bool) -> int:
    verdict = run(plan, mutant, tracing=trace)
    if trace:
        print("\n".join(verdict.lines))
    if not verdict.law:
        print(f"seed {plan.seed}: every law holds")
        return 0
    print(f"seed {plan.seed}: {verdict.text}")
    if shrink:
        _show_smallest(verdict, mutant)
    return 1


def _show_smallest(verdict: Verdict, mutant: mutants.Mutant | None) -> None:
    small = smallest(verdict, mutant)
    print(f"\nThe same with {len(small.plan.ops)} operations:\n")
    print("\n".join(small.lines))
    operations = sum(
        op.kind not in ("disaster", "define", "merge", *FOLLOW) for op in verdict.plan.ops if op.id < STAGED
    )
    print(f"\n{small.text}\nReplay: {_command(small.plan, mutant, operations)}")


def _command(plan: Plan, mutant: mutants.Mutant | None, operations: int) -> str:
    parts = ["python -m tests.simulation", f"--seed {plan.seed} --operations {operations} --trace"]
    parts.append(f"--keep {_ranges([op.id for op in plan.ops])}")
    if plan.calm:
        parts.append("--calm " + ",".join(f"{op}:{call}" for op, call in sorted(plan.calm)))
    if mutant is not None:
        parts.append(f"--mutant {mutant.name}")
    return " ".join(parts)


def _ranges(numbers: list[int]) -> str:
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def _numbers(text: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found


class _Sum:
    """What many runs came to."""

    def __init__(self) -> None:
        self.seeds = 0
        self.met: Counter[tuple[str, str]] = Counter()
        self.checked: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self.failed: list[tuple[int, str, str]] = []

    def add(self, verdict: Verdict) -> None:
        """One more run."""
        self.seeds += 1
        self.met += verdict.met
        self.checked += verdict.checked
        self.happened += verdict.happened
        if verdict.law:
            self.failed.append((verdict.plan.seed, verdict.law, verdict.text))

    def merge(self, other: _Sum) -> None:
        """Another worker's."""
        self.seeds += other.seeds
        self.met += other.met
        self.checked += other.checked
        self.happened += other.happened
        self.failed += other.failed


def _chunk(task: tuple[int, int, int, str | None]) -> _Sum:
    first, count, operations, mutant = task
    total = _Sum()
    for seed in range(first, first + count):
        with _watched():
            total.add(run(make(seed, operations), mutants.ALL[mutant] if mutant else None))
    return total


@contextmanager
def _watched() -> Iterator[None]:
    """Watches a run of one seed. If it hangs, this process ends, after it showed where it hangs."""
    faulthandler.dump_traceback_later(_STUCK_S, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _many(given: argparse.Namespace, mutant: mutants.Mutant | None) -> int:
    began = time.monotonic()
    total = _Sum()
    end = given.first + given.seeds
    tasks = [
        (first, min(_CHUNK, end - first), given.operations, given.mutant) for first in range(given.first, end, _CHUNK)
    ]
    with ProcessPoolExecutor(given.workers) as pool:
        told = began
        for part in as_completed([pool.submit(_chunk, task) for task in tasks]):
            total.merge(part.result())
            now = time.monotonic()
            if now - told >= 5:
                told = now
                rate = total.seeds / (now - began)
                print(
                    f"{total.seeds} of {given.seeds} seeds, {rate:.1f}/s, {len(total.failed)} failed", file=sys.stderr
                )
    seconds = time.monotonic() - began
    print(
        f"{total.seeds} seeds of {given.operations} operations in {seconds:.0f} s: {total.seeds / seconds:.1f} seeds/s\n"
    )
    print("\n".join(f"{count:>10} times checked: {law}" for law, count in total.checked.most_common()))
    print("\n" + table(total.met))
    others = [
        f"{count:>10} times: {what}, {how}" for (what, how), count in sorted(total.met.items()) if "." not in what
    ]
    print("\n" + "\n".join(others))
    print(f"{total.happened['dead items']:>10} times: an item was put into a slot that had been used and trimmed")
    for seed, _, text in sorted(total.failed)[:SHOWN]:
        print(f"\nseed {seed} failed: {text}")
    if total.failed:
        print(f"\n{len(total.failed)} seeds failed; the first, made smaller:")
        _show_smallest(run(make(min(total.failed)[0], given.operations), mutant), mutant)
        return 1
    count, call, kind = least(total.met)
    print(f"\nEvery law holds. Least exercised: {call} × {kind}, {count} times.")
    return int(given.seeds >= MANY and count < ENOUGH)


def _hunt(given: argparse.Namespace) -> int:
    found: dict[str, mutants.Found] = {}
    tasks = [(name, given.first, given.seeds, given.operations) for name in mutants.ALL]
    with ProcessPoolExecutor(given.workers) as pool:
        for name, seed, law, text in pool.map(_find, tasks):
            if seed is None:
                print(f"{name:45} survives {given.seeds} seeds", flush=True)
            else:
                print(f"{name:45} seed {seed}: {text[:120]}", flush=True)
                if not mutants.is_broken(text):
                    found[name] = mutants.Found(seed, law)
    print(f"\n{len(found)} of {len(mutants.ALL)} mutants found")
    if len(found) < len(mutants.ALL):
        return 1
    if given.write:
        mutants.write_found(found)
    return 0


def _find(task: tuple[str, int, int, int]) -> tuple[str, int | None, str, str]:
    name, first, seeds, operations = task
    for seed in range(first, first + seeds):
        with _watched():
            judged = mutants.judge(mutants.ALL[name], seed, operations)
        if judged.law:
            return name, seed, judged.law, judged.text
    return name, None, "", ""


if __name__ == "__main__":
    sys.exit(main())
