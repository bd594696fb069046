"""What a search asks for, checked, and the order of hits: what may be sorted by, and what comes after a hit.

An absent value (null) is above every other: last ascending, first descending. Of several values the least counts
ascending and the greatest descending. Keywords compare by code point, which is the order of their UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from headrace.errors import InvalidRequest
from headrace.query.language import canonical, query
from headrace.query.language.canonical import SearchConfig, Value
from headrace.query.language.query import And, Anywhere, Node, Not, Or, Values, Words

Key = tuple[Any, ...]  # one element per sort term: a canonical value, an offset, a score, or None


class SortTerm(NamedTuple):
    """One thing to sort by.

    Attributes:
        kind: `score` is the contract's, `bm25` Okapi's.
        field: of kind `field`.
    """

    kind: Literal["field", "offset", "score", "bm25"]
    descending: bool
    field: str = ""


_RESERVED: dict[str, Literal["offset", "score", "bm25"]] = {"offset": "offset", "_score": "score", "_bm25": "bm25"}
_NEWEST = SortTerm("offset", descending=True)


def parse_sort(items: Iterable[Any], node: Node, config: SearchConfig) -> tuple[SortTerm, ...]:
    """Parses the order that a request asks for, or takes the default one; the offset ends the comparison if need be.

    Raises:
        InvalidRequest: an item is no text, or names no sortable field, or no direction.
    """
    terms = [_term(item, config) for item in items]
    if not terms and has_text(node):
        primary = SortTerm("field", descending=True, field=config.primary_timestamp_field)
        terms = [SortTerm("score", descending=True), primary]
    if not any(term.kind == "offset" for term in terms):
        terms.append(_NEWEST)
    return tuple(terms)


def _term(item: Any, config: SearchConfig) -> SortTerm:
    if not isinstance(item, str):
        raise InvalidRequest("sort must be an array of texts such as field:asc")
    name, colon, direction = item.strip().partition(":")
    if not name:
        raise InvalidRequest("sort has an empty entry")
    if colon and direction not in ("asc", "desc"):
        raise InvalidRequest(f"sort direction must be asc or desc: field={name[:64]}")
    descending = direction != "asc"
    kind = _RESERVED.get(name)
    if kind is not None:
        return SortTerm(kind, descending)
    field = config.resolve(name)
    if field is None:
        raise InvalidRequest(f"unknown sort field: {name[:64]}")
    if not config.fields[field].sortable and field != config.primary_timestamp_field:
        raise InvalidRequest(f"field is not sortable: {field}")
    return SortTerm("field", descending, field)


def has_text(node: Node) -> bool:
    """Returns whether the query asks for words: then hits have scores."""
    if isinstance(node, And | Or):
        return any(map(has_text, node.parts))
    if isinstance(node, Not):
        return has_text(node.part)
    return isinstance(node, Words | Anywhere)


def fields_of(terms: Sequence[SortTerm]) -> frozenset[str]:
    """Returns the fields whose values the order needs."""
    return frozenset(term.field for term in terms if term.kind == "field")


def value_of(term: SortTerm, values: Values) -> Value | None:
    """Returns what a record is sorted by, of its canonical values."""
    found = values.get(term.field)
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    pick: Callable[..., Value] = max if term.descending else min
    return pick(found)


def in_order(hits: Iterable[Any], terms: Sequence[SortTerm], key: Callable[[Any], Key]) -> list[Any]:
    """Returns hits from the first to the last; `key` gives an element per term."""
    found = list(hits)
    for at in range(len(terms) - 1, -1, -1):  # the sort is stable
        found.sort(key=lambda hit, at=at: _placed(key(hit)[at]), reverse=terms[at].descending)  # type: ignore[misc]
    return found


def is_after(key: Key, after: Key, terms: Sequence[SortTerm]) -> bool:
    """Returns whether a hit with `key` is behind the place `after`."""
    for value, limit, term in zip(key, after, terms, strict=True):
        placed, bound = _placed(value), _placed(limit)
        if placed != bound:
            return placed < bound if term.descending else placed > bound
    return False


def _placed(value: Any) -> tuple[bool, Any]:
    return (True, 0) if value is None else (False, value)


def parse_after(
    raw: Any, terms: Sequence[SortTerm], config: SearchConfig, position: Callable[[str], int]
) -> Key | None:
    """Returns the place in `search_after`; None without one.

    Args:
        raw: what the request says: as many elements as the order has, as `next_search_after` gave them.
        position: the offset of a hit in print.

    Raises:
        InvalidRequest: another number of elements, or one of another kind.
    """
    if raw is None:
        return None
    if not isinstance(raw, list):
        raise InvalidRequest("search_after must be an array")
    if len(raw) != len(terms):
        raise InvalidRequest(
            f"search_after must have an element per sort term: expected={len(terms)} found={len(raw)}"
        )
    return tuple(_after(value, term, config, position) for value, term in zip(raw, terms, strict=True))


def _after(value: Any, term: SortTerm, config: SearchConfig, position: Callable[[str], int]) -> Any:
    if term.kind == "offset":
        if not isinstance(value, str):
            raise InvalidRequest("search_after has an offset that is no text")
        return position(value)
    if term.kind != "field":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidRequest("search_after has a score that is no number")
        return float(value)
    if value is None:
        return None
    found = canonical.reader(config.fields[term.field])(value)
    if found is None:
        raise InvalidRequest(f"search_after has a value that is not of its field: field={term.field}")
    return found


MAX_SIZE = 500
DEFAULT_SIZE = 50
MAX_TIMEOUT_MS = 3000  # the contract's: a longer wish is cut

# What others offer and this server does not: a silent page without it would be taken for an answer.
_UNSUPPORTED = ("track_total_hits", "highlight", "snippet", "snippets", "stream", "streams", "indices")


class SearchRequest(NamedTuple):
    """A search of one stream.

    Attributes:
        node: the query.
        size: hits wanted.
        sort: the order; its last terms decide between equals.
        after: hits are behind this place; None: from the first one.
        timeout_ms: what the search may take; then it answers with what it has.
        explain: says how it was answered.
    """

    node: Node
    size: int
    sort: tuple[SortTerm, ...]
    after: Key | None
    timeout_ms: int
    explain: bool


def parse(asked: Mapping[str, Any], config: SearchConfig | None, position: Callable[[str], int]) -> SearchRequest:
    """Parses the request in a body, or in parameters that were read into its form.

    Args:
        asked: the members; unknown ones are ignored.
        config: of the stream.
        position: the offset of a hit in print.

    Raises:
        InvalidRequest: the stream declares no fields, or a member is missing or malformed, or asks for what is not
            supported.
    """
    for name in _UNSUPPORTED:
        if name in asked:
            raise InvalidRequest(f"{name} is not supported")
    if config is None:
        raise InvalidRequest("search is not configured for this stream")
    text = asked.get("q")
    if not isinstance(text, str):
        raise InvalidRequest("q must be a text")
    node = query.parse_query(text, config)
    items = asked.get("sort")
    if items is not None and not isinstance(items, list):
        raise InvalidRequest("sort must be an array of texts such as field:asc")
    sort = parse_sort(items or (), node, config)
    return SearchRequest(
        node=node,
        size=_size(asked.get("size", DEFAULT_SIZE)),
        sort=sort,
        after=parse_after(asked.get("search_after"), sort, config, position),
        timeout_ms=timeout_ms(asked.get("timeout_ms")),
        explain=flag(asked.get("explain"), "explain"),
    )


def _size(value: Any) -> int:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(value, float) and value.is_integer():
        value, is_whole = int(value), True
    if not is_whole or not 1 <= value <= MAX_SIZE:
        raise InvalidRequest(f"size must be an integer from 1 to {MAX_SIZE}")
    return int(value)


def timeout_ms(value: Any) -> int:
    """Returns the effective budget of a request: what it asks for, but never more than the server grants.

    Raises:
        InvalidRequest: not a number, or negative.
    """
    if value is None:
        return MAX_TIMEOUT_MS
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidRequest("timeout_ms must be a number that is not negative")
    return int(min(value, MAX_TIMEOUT_MS))


def flag(value: Any, name: str) -> bool:
    """Returns whether a boolean of a request; absent is no.

    Raises:
        InvalidRequest: neither true nor false.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InvalidRequest(f"{name} must be true or false")
