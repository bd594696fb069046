"""Feature tables on stores in memory, with any number of processes, a folder, and a naive fold to compare with."""

from __future__ import annotations

from typing import Any

import orjson

from headrace.features.fold import Folder, Pass
from headrace.features.register import Registrations
from headrace.features.rows import AsOf, decode_row, encode_row, read_row
from headrace.features.values import GetRequest, lane
from headrace.features.verbs import Features
from headrace.log.stores import Stores
from headrace.memory import memory_stores
from headrace.settings import Settings
from headrace.tables.features import TABLE, MemoryFeatures
from tests.support.clocks import ManualClock

NS = "default"


def event(name: str = "Tx", **node: Any) -> dict[str, Any]:
    """Returns an event node with the fields `user`, `amount` and `n`."""
    fields = {"user": "str", "amount": "f64", "n": "i64"}
    schema = {"fields": node.pop("fields", fields), "optional_fields": node.pop("optional", [])}
    return {"kind": "event", "name": name, "schema": schema, **node}


def table(name: str = "U", upstream: str = "Tx", keys: list[str] | None = None, **agg: Any) -> dict[str, Any]:
    """Returns a table node. Each aggregation is `op` or `(op, params)`; by default a count and a sum."""
    keys = ["user"] if keys is None else keys
    given = agg or {"c": "count", "s": ("sum", {"field": "amount"})}
    aggregations = {
        feature: {"op": one, "params": {}} if isinstance(one, str) else {"op": one[0], "params": one[1]}
        for feature, one in given.items()
    }
    return {
        "kind": "derivation",
        "name": name,
        "output_kind": "table",
        "upstreams": [upstream],
        "ops": [{"op": "group_by", "keys": keys, "agg": aggregations}],
        "table_primary_key": keys,
    }


def tx(user: str = "a", amount: float = 1.0, n: int = 1) -> dict[str, Any]:
    """Returns the data of an event `Tx`."""
    return {"user": user, "amount": amount, "n": n}


def rows_of(stores: Stores) -> MemoryFeatures:
    """Returns the table of rows of stores in memory."""
    table = stores.tables[TABLE]
    assert isinstance(table, MemoryFeatures)
    return table


def poison(*_: object) -> None:
    """Fails in place of an operator's `fold`."""
    raise OverflowError("poison")


class World:
    """One namespace.

    Attributes:
        api: a process that serves requests; `other()` creates more.
        folder: a process that folds.
    """

    def __init__(
        self, *nodes: dict[str, Any], stores: Stores | None = None, settings: Settings | None = None
    ) -> None:
        self.clock = ManualClock()
        self.stores = stores or memory_stores(settings, self.clock)
        self.api = Features(self.stores, may_reset=True)
        self.folder = Folder(Registrations(self.stores))
        if nodes:
            self.register(*nodes)

    @property
    def rows(self) -> MemoryFeatures:
        """The table of rows."""
        return rows_of(self.stores)

    def other(self) -> Features:
        """Returns another process with cold caches."""
        return Features(self.stores, may_reset=True)

    def register(self, *nodes: dict[str, Any], **flags: Any) -> Any:
        """Registers nodes."""
        return self.api.register(NS, {"nodes": list(nodes), **flags})

    def push(self, data: dict[str, Any] | None = None, event: str = "Tx", by: Features | None = None) -> Any:
        """Pushes an event."""
        return (by or self.api).push(NS, event, [data if data is not None else tx()])

    def get(self, key: Any = "a", table: str = "U", by: Features | None = None, **options: Any) -> Any:
        """Returns the row of an entity; raises its error."""
        features = options.pop("features", None)
        answers = (by or self.api).get(NS, [GetRequest(table, key, features)], **options)
        (row,) = answers.rows
        if isinstance(row, Exception):
            raise row
        return row

    def as_of(self, key: Any = "a", table: str = "U", by: Features | None = None) -> AsOf:
        """Returns which events an answer includes."""
        return (by or self.api).get(NS, [GetRequest(table, key)]).as_of

    def fold(self, event: str = "Tx", number: int = 0, tries: int = 1) -> Pass:
        """Folds a lane to its end."""
        return self.folder.fold(lane(NS, event, number), self.clock.monotonic() + 10, tries)

    def naive(self, entity: str, table_name: str = "U", event: str = "Tx", number: int = 0) -> dict[str, Any]:
        """Returns what the row of an entity must show: each event folded alone, the row stored and loaded in between."""
        log = Registrations(self.stores)
        which = lane(NS, event, number)
        head = log.head(which)
        pipelines = log.pipelines_of(head, 0)
        last = pipelines.last.tables[table_name]
        data: bytes | None = None
        position = head.state.floor
        while position < head.state.next_offset:
            page = log.records(which, position)
            for record in page.records:
                pipeline = pipelines.at(record.offset)
                at = pipeline.tables.get(table_name) if pipeline is not None else None
                if pipeline is None or at is None or at.generation != last.generation:
                    continue
                placed = at.entity_of(pipeline.check(orjson.loads(record.data)))
                if placed is None or placed[0] != entity:
                    continue
                state = decode_row(at.features, data) if data is not None else at.features.new()
                at.features.fold(state, placed[1], record.time_ms, number, record.offset)
                data = encode_row(at.features, state)
            position = page.next
        state = decode_row(last.features, data) if data is not None else None
        return read_row(last, state, self.clock.now_ms())
