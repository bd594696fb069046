"""Partitions in sort-key order, so that a query costs what it returns and not what the table holds."""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import Any

from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import RESULT_SIZE_LIMIT, Table


class Partition(dict[DynamoType, Item]):
    """Items of one partition key by sort key, with the sort keys' values in order beside them."""

    __slots__ = ("_key_of", "_values")

    def __init__(self) -> None:
        super().__init__()
        self._values: list[Any] = []
        self._key_of: dict[Any, DynamoType] = {}

    def __setitem__(self, key: DynamoType, item: Item) -> None:
        value = key.cast_value
        if value not in self._key_of:
            if not self._values or value > self._values[-1]:
                self._values.append(value)
            else:
                bisect.insort(self._values, value)
        self._key_of[value] = key
        super().__setitem__(key, item)

    def pop(self, key: DynamoType, *default: Any) -> Any:
        value = key.cast_value
        if self._key_of.pop(value, None) is not None:
            del self._values[bisect.bisect_left(self._values, value)]
        return super().pop(key, *default)

    def page(self, start: int, end: int, *, forward: bool, limit: int | None) -> list[Item]:
        """Items of the positions [start, end), in order, until a page is surely full: one more than `limit`."""
        positions = range(start, end) if forward else range(end - 1, start - 1, -1)
        items: list[Item] = []
        size = 0
        for position in positions:
            item = self[self._key_of[self._values[position]]]
            items.append(item)
            size += item.size()
            if (limit and len(items) > limit) or size > 2 * RESULT_SIZE_LIMIT:
                break
        return items

    def positions(self, comparison: str | None, operands: list[Any]) -> tuple[int, int]:
        """The half-open range of positions that can satisfy a key condition (a superset for BEGINS_WITH)."""
        values = self._values
        low, high = 0, len(values)
        match (comparison or "").upper():
            case "EQ" | "=":
                low, high = bisect.bisect_left(values, operands[0]), bisect.bisect_right(values, operands[0])
            case "LT" | "<":
                high = bisect.bisect_left(values, operands[0])
            case "LE" | "<=":
                high = bisect.bisect_right(values, operands[0])
            case "GT" | ">":
                low = bisect.bisect_right(values, operands[0])
            case "GE" | ">=":
                low = bisect.bisect_left(values, operands[0])
            case "BETWEEN":
                low, high = bisect.bisect_left(values, operands[0]), bisect.bisect_right(values, operands[1])
            case "BEGINS_WITH":
                low, high = bisect.bisect_left(values, operands[0]), self._end_of_prefix(operands[0])
        return low, high

    def after(self, value: Any) -> int:
        """The first position above `value`."""
        return bisect.bisect_right(self._values, value)

    def at(self, value: Any) -> int:
        """The first position not below `value`."""
        return bisect.bisect_left(self._values, value)

    def _end_of_prefix(self, prefix: str) -> int:
        return bisect.bisect_left(self._values, True, key=lambda v: v > prefix and not v.startswith(prefix))


class _TableOf:
    """Stands in for a table while moto answers a query: the same table, with fewer items to look at."""

    def __init__(self, table: Table, items: list[Item]) -> None:
        self._table = table
        self._items = items

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def all_items(self) -> list[Item]:
        return self._items


def install() -> None:
    """Gives every table made from now on ordered partitions, and queries that use them."""
    make_table, query = Table.__init__, Table.query

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make_table(self, *args, **kwargs)
        if self.range_key_attr:
            self.items = defaultdict(Partition)

    def ordered_query(
        self: Any,
        hash_key: DynamoType,
        range_comparison: str | None,
        range_objs: list[DynamoType],
        limit: int | None,
        exclusive_start_key: dict[str, Any] | None,
        scan_index_forward: bool | None,
        projection_expressions: Any,
        index_name: str | None = None,
        consistent_read: bool = False,
        filter_expression: Any = None,
        **conditions: Any,
    ) -> Any:
        by_index = bool(index_name)
        legacy_filter = set(conditions) - {"hash_key_conditions", "range_key_conditions"}
        table: Any = self
        if self.range_key_attr and not by_index and not legacy_filter:
            forward = scan_index_forward is not False
            operands = [operand.cast_value for operand in range_objs]
            partition = self.items.get(hash_key) or Partition()
            low, high = partition.positions(range_comparison, operands)
            if exclusive_start_key:
                last = DynamoType(exclusive_start_key[self.range_key_attr]).cast_value
                low, high = (
                    (max(low, partition.after(last)), high) if forward else (low, min(high, partition.at(last)))
                )
            table = _TableOf(self, partition.page(low, high, forward=forward, limit=limit))
        return query(
            table,
            hash_key,
            range_comparison,
            range_objs,
            limit,  # type: ignore[arg-type]
            exclusive_start_key,  # type: ignore[arg-type]
            scan_index_forward,  # type: ignore[arg-type]
            projection_expressions,
            index_name,
            consistent_read,
            filter_expression,
            **conditions,
        )

    Table.__init__ = init  # type: ignore[method-assign]
    Table.query = ordered_query  # type: ignore[method-assign,assignment]
