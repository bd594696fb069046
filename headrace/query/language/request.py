"""What a search asks for, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.errors import InvalidRequest
from headrace.query.language import query, sorting
from headrace.query.language.config import SearchConfig
from headrace.query.language.query import Node
from headrace.query.language.sorting import Key, SortTerm

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
        after: hits stand behind this place; None: from the first one.
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
    """The request in a body, or in parameters that were read into its form.

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
    sort = sorting.parse(items or (), node, config)
    return SearchRequest(
        node=node,
        size=_size(asked.get("size", DEFAULT_SIZE)),
        sort=sort,
        after=sorting.parse_after(asked.get("search_after"), sort, config, position),
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
    """The effective budget of a request: what it asks for, but never more than the server grants.

    Raises:
        InvalidRequest: not a number, or negative.
    """
    if value is None:
        return MAX_TIMEOUT_MS
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidRequest("timeout_ms must be a number that is not negative")
    return int(min(value, MAX_TIMEOUT_MS))


def flag(value: Any, name: str) -> bool:
    """A boolean of a request; absent is no.

    Raises:
        InvalidRequest: neither true nor false.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InvalidRequest(f"{name} must be true or false")
