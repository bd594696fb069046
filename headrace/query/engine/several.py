"""One search of several logs: each is searched on its own, and what they answered is joined here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.errors import InvalidRequest
from headrace.query.engine.search import Hit, SearchAnswer
from headrace.query.language.search_request import in_order

_NUMBERS = ("integer", "float", "date")  # which compare with each other


def first_hits(answers: Sequence[SearchAnswer], *, by_offset: bool) -> list[tuple[int, Hit]]:
    """Returns the hits of a page over all answers, in order, each with the number of its answer. Of equal ones, those of
    the first answer come first.

    Args:
        by_offset: whether offsets tell the order of hits of different logs.

    Raises:
        InvalidRequest: a field by which hits are sorted has kinds that don't compare.
    """
    request = answers[0].request
    terms = request.sort if by_offset else request.sort[:-1]
    for at, term in enumerate(terms):
        if len({_order(answer, at) for answer in answers}) > 1:
            raise InvalidRequest(f"field has values of different kinds, which have no order: {term.field}")
    hits = [(number, hit) for number, answer in enumerate(answers) for hit in answer.hits]
    return in_order(hits, terms, lambda found: found[1].candidate.key[: len(terms)])[: request.size]


def _order(answer: SearchAnswer, at: int) -> str:
    """Returns what the values of a sort term are, as far as their order goes."""
    term, search = answer.request.sort[at], answer.snapshot.definition.search
    if term.kind != "field" or search is None:
        return term.kind
    kind = search.fields[term.field].kind
    return "number" if kind in _NUMBERS else kind


def summary(answers: Sequence[SearchAnswer]) -> dict[str, Any]:
    """Returns the members of the joined answer that say what was searched, and how much was found."""
    coverages = [answer.coverage.members(int) for answer in answers]
    missing = "possible_missing_events_upper_bound"
    return {
        "timed_out": any(answer.timed_out for answer in answers),
        "coverage": {
            "complete": all(one["complete"] for one in coverages),
            missing: sum(one[missing] for one in coverages),
            "indexed_segments": sum(answer.indexed_segments for answer in answers),
            "scanned_segments": sum(answer.scanned_segments for answer in answers),
            "scanned_tail_docs": sum(answer.scanned_tail for answer in answers),
            "index_families_used": sorted({family for answer in answers for family in answer.families}),
        },
        "total": {
            "value": sum(answer.total for answer in answers),
            "relation": "eq" if all(answer.exact for answer in answers) else "gte",
        },
    }
