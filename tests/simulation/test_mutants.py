"""The laws notice broken variants of the engine. `python -m tests.simulation --mutants` hunts all of them."""

from __future__ import annotations

import pytest

from tests.simulation import mutants
from tests.simulation.test_simulation import SEEDS

OPERATIONS = 200
WINDOW = 25  # seeds: changes of the engine move the seed at which a mutant is found


@pytest.mark.parametrize("name", mutants.ALL)
def test_a_mutant_is_found_where_it_was_and_the_engine_passes_there(name: str) -> None:
    first = mutants.read_found()[name].seed
    mutant = mutants.ALL[name]
    judged = (mutants.judge(mutant, seed, OPERATIONS) for seed in range(first, first + WINDOW))
    found = next((one for one in judged if one.law), None)
    assert found is not None, (
        f"{name!r} survives {WINDOW} seeds from {first} on. Hunt for it again, if the engine has changed: "
        "python -m tests.simulation --mutants --seeds 2000 --write"
    )
    assert not mutants.is_broken(found.text), f"{name!r} no longer fits the engine: {found.text}"
    if mutant.world or found.seed >= SEEDS:  # below, `test_every_law_holds_in_many_seeds` does that
        assert not mutants.judge(mutant, found.seed, OPERATIONS, is_active=False).law, "the engine breaks a law, too"


def test_the_documented_table_has_every_mutant_with_its_hazard() -> None:
    assert list(mutants.read_found()) == list(mutants.ALL)
    page = mutants.PAGE.read_text()
    assert [name for name, mutant in mutants.ALL.items() if f"| {name} | {mutant.hazard} |" not in page] == []
