"""The laws hold for every input that fuzzing found worth keeping. Needs no fuzzer."""

from __future__ import annotations

import pytest

from headrace import batch
from headrace.batch import Batch
from tests.fuzz.reduce import CORPUS
from tests.fuzz.targets import TARGETS

INPUTS = [(path.parent.name, path.name) for path in sorted(CORPUS.glob("*/*"))]


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_of_a_parser_keeps_its_law(target: str) -> None:
    inputs = [name for owner, name in INPUTS if owner == target]
    assert inputs
    for name in inputs:
        try:
            TARGETS[target]((CORPUS / target / name).read_bytes())
        except Exception as exc:
            exc.add_note(f"input: {CORPUS / target / name}")
            raise


def test_every_corpus_belongs_to_a_parser_and_all_are_small() -> None:
    assert {owner for owner, _ in INPUTS} == set(TARGETS)
    assert sum((CORPUS / owner / name).stat().st_size for owner, name in INPUTS) < 300_000


def test_a_parser_that_gives_wrong_data_breaks_its_law(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(payload: bytes, source: str) -> Batch:
        whole = batch.decode_frames(payload, source)
        return whole.part(0, len(whole) - 1)

    monkeypatch.setattr("tests.fuzz.stored.decode_frames", careless)
    with pytest.raises(AssertionError, match="wrong data"):
        TARGETS["frames"](b"\x01")
