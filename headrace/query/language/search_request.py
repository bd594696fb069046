"""Parses search requests, and defines the order of hits: what may be sorted by, and which hit comes after another.

An absent value (null) is above every other: last ascending, first descending. If there are several values, the least
counts in ascending order and the greatest in descending order. Keywords compare by code point, which is the order of
their UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from headrace.errors import InvalidRequest
from headrace.query.language import canonical, grammar, snippets
from headrace.query.language.canonical import SearchConfig, Value
from headrace.query.language.query import And, Anywhere, Node, Not, Or, Values, Words
from headrace.query.language.snippets import SnippetRequest

Key = tuple[Any, ...]  # one element per sort term: a canonical value, an offset, a score, or None


class SortTerm(NamedTuple):
    """One term of a sort order.

    Attributes:
        kind: `score` is that of Prisma Streams, `bm25` Okapi's; `field` and `offset` sort by values.
        field: name of the field, for kind `field`.
    """

    kind: Literal["field", "offset", "score", "bm25"]
    descending: bool
    field: str = ""


_RESERVED: dict[str, Literal["offset", "score", "bm25"]] = {"offset": "offset", "_score": "score", "_bm25": "bm25"}
_NEWEST = SortTerm("offset", descending=True)


def parse_sort(items: Iterable[Any], node: Node, config: SearchConfig) -> tuple[SortTerm, ...]:
    """Parses the order that a request asks for; without one, returns the default: by score and time if the query has words,
    else the newest first. The offset is added as the last term if needed.

    Raises:
        InvalidRequest: an item is no text, or its field is not sortable, or its direction is unknown.
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
    if name == "_time":  # the primary timestamp, whatever it is called
        return SortTerm("field", descending, config.primary_timestamp_field)
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
    """Returns whether the query asks for words, so that hits have scores."""
    if isinstance(node, And | Or):
        return any(map(has_text, node.parts))
    if isinstance(node, Not):
        return has_text(node.part)
    return isinstance(node, Words | Anywhere)


def fields_of(terms: Sequence[SortTerm]) -> frozenset[str]:
    """Returns the fields whose values the order needs."""
    return frozenset(term.field for term in terms if term.kind == "field")


def value_of(term: SortTerm, values: Values) -> Value | None:
    """Returns the value by which a record is sorted, from its canonical values: the least of several, for a descending term
    the greatest; None if it has none.
    """
    found = values.get(term.field)
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    pick: Callable[..., Value] = max if term.descending else min
    return pick(found)


def in_order(hits: Iterable[Any], terms: Sequence[SortTerm], key: Callable[[Any], Key]) -> list[Any]:
    """Returns the hits sorted by `terms`; `key` returns a hit's sort key, one element per term."""
    found = list(hits)
    for at in range(len(terms) - 1, -1, -1):  # the sort is stable
        found.sort(key=lambda hit, at=at: _placed(key(hit)[at]), reverse=terms[at].descending)  # type: ignore[misc]
    return found


def is_after(key: Key, after: Key, terms: Sequence[SortTerm]) -> bool:
    """Returns whether a hit with sort key `key` comes after the position `after`. It is False for the same position."""
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
    """Parses `search_after`, the position after which a page begins; None if it is missing.

    Args:
        raw: the member of the request: one element per sort term, as `next_search_after` returned them.
        position: converts the text of a hit's offset to the offset.

    Raises:
        InvalidRequest: the number of elements is wrong, or one has another kind.
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
MAX_TIMEOUT_MS = 3000  # the limit in Prisma Streams: a longer timeout is cut

# What others offer and this server does not: a silent page without it would be taken for an answer.
_UNSUPPORTED = ("track_total_hits", "highlight", "snippets", "stream", "streams", "indices")


class SearchRequest(NamedTuple):
    """A checked search request.

    Attributes:
        node: the query.
        size: number of hits to return.
        sort: the order; the last term is unique.
        after: the position after which the page begins; None for the first page.
        timeout_ms: time that the search may take; then it answers with what it has found.
        explain: whether the answer says how it was found.
        snippet: which pieces of texts the hits show; None for none.
    """

    node: Node
    size: int
    sort: tuple[SortTerm, ...]
    after: Key | None
    timeout_ms: int
    explain: bool
    snippet: SnippetRequest | None = None


def parse(asked: Mapping[str, Any], config: SearchConfig | None, position: Callable[[str], int]) -> SearchRequest:
    """Parses a search request from a body, or from URL parameters in the form of a body.

    Args:
        asked: the members of the body; unknown ones are ignored.
        config: the stream's search configuration.
        position: converts the text of a hit's offset to the offset.

    Raises:
        InvalidRequest: the stream has no search fields, or a member is missing, malformed or not supported.
    """
    for name in _UNSUPPORTED:
        if name in asked:
            raise InvalidRequest(f"{name} is not supported")
    if config is None:
        raise InvalidRequest("search is not configured for this stream")
    text = asked.get("q")
    if not isinstance(text, str):
        raise InvalidRequest("q must be a text")
    node = grammar.parse_query(text, config)
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
        snippet=snippets.parse(asked.get("snippet"), config),
    )


def _size(value: Any) -> int:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(value, float) and value.is_integer():
        value, is_whole = int(value), True
    if not is_whole or not 1 <= value <= MAX_SIZE:
        raise InvalidRequest(f"size must be an integer from 1 to {MAX_SIZE}")
    return int(value)


def timeout_ms(value: Any) -> int:
    """Returns the milliseconds that a request may take: what it asks for, at most the server's limit; the limit for None.

    Raises:
        InvalidRequest: the value is not a number, or is negative.
    """
    if value is None:
        return MAX_TIMEOUT_MS
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidRequest("timeout_ms must be a number that is not negative")
    return int(min(value, MAX_TIMEOUT_MS))


def flag(value: Any, name: str) -> bool:
    """Returns a boolean member of a request; False if it is missing or null.

    Raises:
        InvalidRequest: the value is anything else.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InvalidRequest(f"{name} must be true or false")
