"""Routers keep their laws by every seed, and each mutant breaks one."""

from __future__ import annotations

import pytest

from tests.simulation.mutant import Mutant
from tests.simulation.relay import MUTANTS, Simulation, kills


@pytest.mark.parametrize("seed", range(1, 13))
def test_the_laws_of_routers_hold(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run()
    assert len(simulation.checked) == 5


@pytest.mark.parametrize(("mutant", "seed"), MUTANTS, ids=[mutant.name for mutant, _ in MUTANTS])
def test_a_mutant_dies(mutant: Mutant, seed: int) -> None:
    """If it survives after a change: `python -m tests.simulation.relay --mutants` finds another seed."""
    assert kills(mutant, seed)
