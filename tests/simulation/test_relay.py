"""The worlds of the relay and of feature tables keep their laws by every seed, and a run depends on its seed alone.
`test_mutants.py` has their mutants.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.relay import WORLDS, judge

SEEDS = 12
FULL_SEEDS = 300  # `python -m tests.simulation.relay --seeds 10000` has them all
LAWS = {"routers": 5, "subscriptions": 9, "watches": 6, "features": 27}


@pytest.mark.parametrize("world", WORLDS)
def test_the_laws_of_the_relay_hold(world: str, full: bool) -> None:
    checked: Counter[str] = Counter()
    for seed in range(FULL_SEEDS if full else SEEDS):
        one = judge(world, seed)
        assert not one.law, (
            f"{one.text}\nReplay: python -m tests.simulation.relay --world {world} --first {seed} --seeds 1"
        )
        checked += one.checked
    assert len(checked) == LAWS[world], checked


@pytest.mark.parametrize("world", WORLDS)
def test_the_same_seed_gives_the_same_run(world: str) -> None:
    assert judge(world, 3).calls == judge(world, 3).calls > 100
