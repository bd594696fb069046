"""Every law holds in many seeded runs, a run depends on its seed alone, and a failure comes as a short trace."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.simulation import mutants
from tests.simulation.faults import POSSIBLE
from tests.simulation.plan import make
from tests.simulation.run import Verdict, run
from tests.simulation.shrink import smallest

SEEDS = 150
FULL_SEEDS = 500  # `python -m tests.simulation --seeds 10000` has them all
RARE = {"recovery: catalog.mark_ended", "recovery: sessions.commit", "wal.remove_dead"}  # too rare for so few seeds
OPERATIONS = 200
ROOT = Path(__file__).parents[2]


def test_every_law_holds_in_many_seeds(full: bool) -> None:
    met: Counter[tuple[str, str]] = Counter()
    checked: Counter[str] = Counter()
    threads = threading.active_count()  # other tests have left some
    for seed in range(FULL_SEEDS if full else SEEDS):
        verdict = run(make(seed, OPERATIONS))
        if verdict.law:
            small = smallest(verdict, seconds=30)
            trace = "\n".join(small.lines)
            raise AssertionError(
                f"{verdict.text}\n{trace}\nReplay: python -m tests.simulation --seed {seed} --operations {OPERATIONS}"
            )
        met += verdict.met
        checked += verdict.checked
    assert {call for call, _ in met if "." in call} | RARE == set(POSSIBLE)
    assert len(checked) >= 23
    assert sum(count for (what, _), count in met.items() if what == "disaster") > 100
    assert min(met[where, what] for where in ("stream", "queue") for what in ("delivered twice", "lost")) > 30
    assert threading.active_count() < threads + 10


def test_the_same_seed_gives_the_same_run() -> None:
    program = (
        "import sys\nfrom tests.simulation.plan import make\nfrom tests.simulation.run import run\n"
        "for seed in range(3): print('\\n'.join(run(make(seed, 100), tracing=True).lines))"
    )
    here = "\n".join("\n".join(run(make(seed, 100), tracing=True).lines) for seed in range(3))
    elsewhere = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert elsewhere.stdout.rstrip("\n") == here


def _find(mutant: mutants.Mutant) -> Verdict:
    """Returns the first run that breaks a law, from the seed on where the mutant was found."""
    first = mutants.read_found()[mutant.name].seed
    runs = (run(make(seed, OPERATIONS), mutant) for seed in range(first, first + 200))
    return next(verdict for verdict in runs if verdict.law)


def test_a_failing_seed_becomes_a_short_trace_that_can_be_replayed() -> None:
    mutant = mutants.ALL["no ack fence"]
    verdict = _find(mutant)
    small = smallest(verdict, mutant, seconds=30)
    assert small.law == verdict.law
    assert len(small.plan.ops) <= 40 and "BROKEN" in small.lines[-1]
    again = run(small.plan, mutant, tracing=True)
    assert again.lines == small.lines
    assert not run(replace(small.plan, calm=frozenset(small.struck) | small.plan.calm), mutant).law


def test_a_recovery_that_fails_is_shown_with_its_disaster() -> None:
    mutant = mutants.ALL["recovery trusts whatever entries stand"]
    small = smallest(_find(mutant), mutant, seconds=30)
    trace = "\n".join(small.lines)
    assert "the table wal is restored to" in trace
    assert run(small.plan, mutant, tracing=True).lines == small.lines
    assert not run(small.plan).law


def test_a_plan_without_faults_has_none() -> None:
    plan = make(1, OPERATIONS)
    verdict = run(replace(plan, weather=replace(plan.weather, rate=0.0)))
    assert not verdict.law and not verdict.struck
