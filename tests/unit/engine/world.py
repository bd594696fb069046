"""A stream on memory adapters, brought from tail to segments, runs and compacted runs; and what it should answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cmp_to_key
from typing import Any

from headrace.batch import Batch
from headrace.definition import Definition
from headrace.json import registry
from headrace.memory import memory_stores
from headrace.query.engine import context as engines
from headrace.query.engine.context import Engine
from headrace.query.engine.search import SearchAnswer, search
from headrace.query.language import canonical, grammar, query
from headrace.streams.values import AppendRequest, CreateRequest
from headrace.streams.verbs import Streams
from tests.support import index_runs
from tests.unit.api.asgi import QUIET
from tests.unit.search.samples import SEARCH, field

NAME = "s"
JSON = "application/json"

# As the samples', with more that can be sorted by.
CONFIG: dict[str, Any] = {
    **SEARCH,
    "fields": {
        **SEARCH["fields"],
        "code": field("keyword", "/code", "exact", "prefix", "exists", "sortable"),
        "cost": field("float", "/cost", "exact", "column", "exists", "sortable"),
        "status": field("integer", "/status", "exact", "column", "exists", "sortable"),
        "paid": field("bool", "/paid", "exact", "column", "exists", "sortable"),
    },
}


class Stream:
    """One stream of documents with a search configuration, in memory."""

    def __init__(self, config: dict[str, Any] | None = None, schema: dict[str, Any] | None = None) -> None:
        self.stores = memory_stores(QUIET)
        self.logs = Streams(self.stores)
        self.logs.create(NAME, CreateRequest(content_type=JSON))
        self.documents: list[Any] = []
        self.update({"schema": schema or {"type": "object"}, "search": config or CONFIG})

    def update(self, body: dict[str, Any], name: str = NAME) -> None:
        """Changes the schema registry."""
        update = registry.parse_update(json.dumps(body).encode(), name)

        def change(before: Definition, _: Any, state: Any) -> Definition:
            after = registry.apply(
                before.registry,
                update,
                name=name,
                next_offset=state.next_offset,
                is_empty=state.next_offset == 0,
            )
            return Definition(after, before.own)

        self.logs.define(name, change)

    def append(self, documents: Sequence[Any], key: str | None = None, name: str = NAME) -> None:
        """One entry."""
        records = Batch.of([json.dumps(one).encode() for one in documents], key=key)
        self.logs.append(name, AppendRequest(content_type=JSON, records=records))
        if name == NAME:
            self.documents += documents

    def seal(self) -> None:
        """One more segment, of what is in the tail."""
        index_runs.sealed(self.stores, self.logs, NAME)

    def index(self, span: int = 1, skip: int = 0) -> None:
        """Runs of `span` segments."""
        index_runs.index(self.stores, self.logs, NAME, span=span, skip=skip)

    def compact(self) -> None:
        """One run of all."""
        index_runs.compact(self.stores, self.logs, NAME)

    def engine(self, **options: Any) -> Engine:
        """Returns the engine of a process that knows nothing yet."""
        return engines.assemble(self.stores, Streams(self.stores), **options)

    def search(self, q: str, **asked: Any) -> SearchAnswer:
        """Searches in a process that knows nothing yet; returns the answer."""
        return search(self.engine(), NAME, {"q": q, **asked})

    def stages(self, batches: Sequence[Sequence[Any]]) -> Iterator[str]:
        """Appends the documents and says each stage that they have come to."""
        for batch in batches:
            self.append(batch)
        yield "tail"
        for at in range(len(batches)):
            self._reseal(batches, at)
        yield "segments"
        self.index(span=2, skip=1)
        yield "some runs"
        self.index()
        yield "runs"
        self.compact()
        yield "compacted"

    def _reseal(self, batches: Sequence[Sequence[Any]], at: int) -> None:
        """Entries can be sealed together: so each batch is appended again, to a stream with a segment per batch."""
        if at == 0:
            fresh = Stream(self.logs.definition(NAME).registry.search)
            self.__dict__.update(fresh.__dict__)
        self.append(batches[at])
        self.seal()


def naive(
    config: Any, version: int, documents: Sequence[Any], q: str, sort: Sequence[tuple[str, bool]]
) -> list[tuple[int, tuple[Any, ...]]]:
    """Offsets that match and what they are sorted by, in order: written on its own, one comparison after another.

    Args:
        sort: fields or `offset`, and whether they descend.
    """
    node = grammar.parse_query(q, config)
    found = []
    for offset, document in enumerate(documents):
        values = canonical.values(config, version, document)
        if query.matches(node, values):
            key = tuple(
                offset if name == "offset" else _pick(values.get(name, []), descending) for name, descending in sort
            )
            found.append((offset, key))

    def compare(one: tuple[int, tuple[Any, ...]], other: tuple[int, tuple[Any, ...]]) -> int:
        for a, b, (_, descending) in zip(one[1], other[1], sort, strict=True):
            if a == b and (a is None) == (b is None):
                continue
            above = a is None if a is None or b is None else _bytes(a) > _bytes(b)
            return -1 if above == descending else 1
        return 0

    return sorted(found, key=cmp_to_key(compare))


def _pick(values: Sequence[Any], descending: bool) -> Any:
    choose: Callable[..., Any] = max if descending else min
    return choose(values) if values else None


def _bytes(value: Any) -> Any:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
