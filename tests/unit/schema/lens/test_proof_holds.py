"""The promise of the proof: no proven lens fails on, or spoils, a document that the old schema accepts.

Old schemas, documents of theirs and lenses are random. A lens is put together operation by operation so that each can
be followed, for a random one is refused almost always. New schemas are what comes out of the lens, that with something
changed, or anything. Then the verdict of the proof is compared with the validator's.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.json import jsontext, lens, validate
from headrace.json.lens import image, proof
from headrace.json.lens.closed import close
from headrace.json.lens.image import Place
from headrace.json.lens.shapes import Shapes
from tests.support.examples import examples
from tests.unit.schema.lens.documents import document_of, lens_of
from tests.unit.schema.lens.generators import Documents, Operations, Schemas
from tests.unit.schema.lens.mutations import mutated


@dataclass(frozen=True)
class Trial:
    """One random case. `own`: the new schema is exactly what the proof says that comes out."""

    old: Any
    new: Any
    lens: lens.Lens
    documents: list[Any]
    own: bool

    def is_proven(self) -> bool:
        try:
            lens.prove(self.lens, self.old, self.new)
        except InvalidRequest:
            return False
        return True

    def failure(self) -> str | None:
        """Returns what is wrong with the first document that the lens spoils; None if it spoils none."""
        validator = validate.compile(self.new)
        for document in self.documents:
            before = jsontext.dumps(document)
            try:
                promoted = lens.promote([self.lens], document)
                validator.check(jsontext.loads(jsontext.dumps(promoted)))
            except InvalidRequest as exc:
                return f"{before!r}: {exc}"
            assert jsontext.dumps(document) == before, "the input was changed"
        return None


def trial(seed: int) -> Trial | None:
    """Returns the case of a seed; None if it comes to nothing: no documents, no operations, a schema that is refused."""
    random = Random(seed)
    old = Schemas(random).root()
    try:
        documents = Documents(random, old).some(12)
        if not documents:
            return None
        ops, result = _followed(random, old)
        if not ops:
            return None
        roll = random.random()
        own = roll < 0.4
        new = result if own else mutated(random, result) if roll < 0.9 else Schemas(random).root()
        validate.compile(new)
        return Trial(old, new, lens_of(*ops), documents, own)
    except InvalidRequest:
        return None


def _followed(random: Random, old: Any) -> tuple[list[dict[str, Any]], Any]:
    """Operations that the proof can follow from the old schema, and the schema of what they make."""
    closed = close(old)
    shapes, result, ops = Shapes(closed.definitions), closed.fragment, []
    operations = Operations(random, old)
    for _ in range(random.randint(1, 4)):
        for _ in range(4):
            op = operations.one(result if random.random() < 0.97 else old)
            try:
                result = image.run(shapes, lens_of(op).ops, result)
            except InvalidRequest:
                continue
            ops.append(op)
            break
    whole = {**result, "definitions": closed.definitions} if isinstance(result, dict) else result
    return ops, jsontext.loads(jsontext.dumps(whole))


@examples(400)
@given(st.integers(0, 2**64))
def test_a_proven_lens_makes_documents_of_the_new_schema(seed: int) -> None:
    case = trial(seed)
    if case is None:
        return
    proven = case.is_proven()
    assert proven or not case.own, "refused although the new schema is what comes out"
    if proven:
        assert case.failure() is None, document_of(*case.lens.document["ops"])


def test_the_cases_above_are_not_empty_ones() -> None:
    cases = [case for case in map(trial, range(300)) if case is not None]
    proven = [case for case in cases if case.is_proven()]
    kinds = {type(op).__name__ for case in proven for op in case.lens.ops}
    assert len(cases) > 100
    assert len(proven) > 60
    assert len(cases) - len(proven) > 15
    assert {"Rename", "Copy", "Add", "Remove", "Wrap", "Plunge", "Hoist", "Convert", "In"} <= kinds
    assert sum(len(case.documents) for case in proven) > 500


def _forgetting_that_members_may_be_missing(*args: Any) -> Any:
    return (place for place in MEMBERS(*args) if place.value is not None)


def _forgetting_other_cases(shapes: Shapes, fragment: Any) -> Any:
    return CASES(shapes, fragment)[:1]


def _forgetting_to_remove(value: Any, rebuild: Any) -> Place:
    return Place(value, rebuild and (lambda new: rebuild(value if new is None else new)))


MEMBERS, CASES = image._members, Shapes.cases
MUTANTS = {
    "nothing is compared in the end": (proof, "check", lambda *_: None),
    "members are never missing": (image, "_members", _forgetting_that_members_may_be_missing),
    "only the first case counts": (Shapes, "cases", _forgetting_other_cases),
    "what is removed is still there": (image, "Place", _forgetting_to_remove),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_proof_with_a_hole_in_it_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[name])
    for seed in range(1000):
        case = trial(seed)
        if case is not None and case.is_proven() and case.failure() is not None:
            return
    pytest.fail("no document was spoilt")
