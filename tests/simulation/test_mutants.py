"""The laws notice broken variants of the engine. `python -m tests.simulation --mutants` hunts all of them."""

from __future__ import annotations

import pytest

from tests.simulation import mutants
from tests.simulation.plan import make
from tests.simulation.run import run

SEEDS = 150
# These take hundreds of seeds: the command finds them.
SHY = {
    "purge without raising the watermark",
    "fork not counted when its source moved",
    "expiry ignores the touch",
}


@pytest.mark.parametrize("name", [name for name in mutants.ALL if name not in SHY])
def test_a_mutant_is_found(name: str) -> None:
    mutant = mutants.ALL[name]
    assert any(run(make(seed, 200), mutant).law for seed in range(SEEDS)), f"{name} survives {SEEDS} seeds"


def test_there_is_a_mutant_for_each_hazard() -> None:
    assert len(mutants.ALL) >= 12
    assert set(mutants.ALL) > SHY
