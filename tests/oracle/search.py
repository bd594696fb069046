"""What `_search` must answer: every record looked at, all of them sorted, then cut into pages."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any, NamedTuple

from tests.oracle.queries import Query, is_scored
from tests.oracle.values import Config, Document, canonical, raw, resolve, values

SCORE, OFFSET = "_score", "offset"


class Hit(NamedTuple):
    """A record that was found. `sort` has a value for each key of the order but the offset, for which it has None."""

    position: int
    score: float
    sort: tuple[Any, ...]


def search(config: Config, documents: list[Document], query: Query, sort: tuple[str, ...] = ()) -> list[Hit]:
    """Returns all hits in order.

    Args:
        config: as posted.
        documents: every record, in the order of their offsets.
        query: what to look for.
        sort: as requested: `status:asc`, `_score:desc`, ...
    """
    order = keys(config, query, sort)
    hits = []
    for position, document in enumerate(documents):
        score = query.score(config, document)
        if score is not None:
            by = tuple(value_of(config, name, document, score, descends=descends) for name, descends in order)
            hits.append(Hit(position, score, by))
    return sorted(hits, key=cmp_to_key(lambda left, right: compare(order, left, right)))


def keys(config: Config, query: Query, sort: tuple[str, ...]) -> list[tuple[str, bool]]:
    """Returns the keys of an order, each with whether it descends; the offset is always one of them."""
    asked = [resolve(config, item.partition(":")[0]) for item in sort]
    order = [(name, not item.endswith(":asc")) for name, item in zip(asked, sort, strict=True)]
    if not order:
        order = [(SCORE, True), (config["primaryTimestampField"], True)] if is_scored(query) else []
    return order if OFFSET in [name for name, _ in order] else [*order, (OFFSET, True)]


def value_of(config: Config, name: str, document: Document, score: float, *, descends: bool) -> Any:
    """Returns what a record is sorted by: of several values the least, or the greatest when descending."""
    if name in (SCORE, OFFSET):
        return score if name == SCORE else None
    found = values(config, name, document)
    return (max if descends else min)(found) if found else None


def compare(order: list[tuple[str, bool]], left: Hit, right: Hit) -> int:
    """Negative if `left` comes first. No value counts as greater than any."""
    for (name, descends), one, other in zip(order, left.sort, right.sort, strict=True):
        if name == OFFSET:
            one, other = left.position, right.position
        if one == other:
            continue
        is_less = other is None if one is None or other is None else one < other
        return -1 if is_less != descends else 1
    return 0


def fields(config: Config, document: Document) -> dict[str, Any]:
    """Returns a hit's `fields`: values as they are in the record, if they count, a single one unwrapped."""
    shown = {
        name: [value for value in raw(config, name, document) if canonical(field, value) is not None]
        for name, field in config["fields"].items()
    }
    return {name: found[0] if len(found) == 1 else found for name, found in shown.items() if found}
