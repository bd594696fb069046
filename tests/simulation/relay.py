"""The worlds beside that of logs: those of the relay (routers, subscriptions, watches), and that of feature tables. Runs
seeds of one or of all.

    uv run python -m tests.simulation.relay --seeds 2000

`python -m tests.simulation --mutants` hunts their mutants with all others.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

from tests.simulation import feature_mutants, feature_rest, relay_routers, relay_subscriptions, relay_watches
from tests.simulation.mutant import Mutant
from tests.simulation.relay_world import Broken, Simulation

MUTANTS = (*relay_routers.MUTANTS, *relay_subscriptions.MUTANTS, *relay_watches.MUTANTS, *feature_mutants.MUTANTS)
WORLDS: dict[str, Callable[[int], Simulation]] = {
    "routers": relay_routers.Routers,
    "subscriptions": relay_subscriptions.Subscribers,
    "watches": relay_watches.Watchers,
    "features": feature_rest.Tables,
}
SHOWN = 5


class Judged(NamedTuple):
    """How a run ended: the law that was broken, if one was, and in these worlds after how many store calls."""

    seed: int
    law: str
    text: str
    checked: Counter[str]
    calls: int = 0


def judge(world: str, seed: int, mutant: Mutant | None = None) -> Judged:
    """Runs one seed of a world."""
    with mutant.active() if mutant is not None else nullcontext():
        simulation = WORLDS[world](seed)
        law = text = ""
        try:
            simulation.run()
        except Broken as exc:
            law, text = exc.law, str(exc)
        except Exception as exc:  # noqa: BLE001 - a defect of the simulation, or of what it drives: both are findings
            law, text = "no unexpected error", repr(exc) + ("" if mutant else traceback.format_exc())
    return Judged(seed, law, text, simulation.checked, simulation.calls)


def run_many(world: str, seeds: range, workers: int, mutant: str = "") -> int:
    """Runs seeds of a world, and prints which break a law; returns how many do."""
    checked: Counter[str] = Counter()
    failed = 0
    with ProcessPoolExecutor(workers) as pool:
        for one in pool.map(partial(_judge_named, world, mutant), seeds, chunksize=20):
            checked += one.checked
            failed += bool(one.law)
            if one.law and failed <= SHOWN:
                print(f"{world}: seed {one.seed} failed: {one.text}", flush=True)
    print(f"{world}, {len(seeds)} seeds, {failed} failed:")
    print("\n".join(f"{count:>10} times checked: {law}" for law, count in checked.most_common()), flush=True)
    return failed


def _judge_named(world: str, mutant: str, seed: int) -> Judged:
    return judge(world, seed, next((one for one in MUTANTS if one.name == mutant), None))


def main() -> int:
    """Runs seeds, and says which break a law; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.relay", description=__doc__)
    parser.add_argument("--world", choices=sorted(WORLDS), action="append")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    return int(sum(run_many(world, seeds, given.workers) for world in given.world or WORLDS) > 0)


if __name__ == "__main__":
    sys.exit(main())
