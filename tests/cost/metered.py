"""Stores that count what AWS would bill: requests, and units by the sizes of items (DynamoDB's documented rules)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.objects import Range
from headrace.objects.memory import MemoryObjects
from headrace.tables.dynamodb import Store
from headrace.tables.items import Item

_WRITE_BYTES = 1024
_READ_BYTES = 4096
_INDEX_BYTES = 100  # of each row of an index, beside its attributes
_INDEXED = {"due_queue", "due_shard", "living_in"}  # keys of indexes


def size_of(item: Item) -> int:
    """Bytes of an item: names in UTF-8, strings and binaries as they are, numbers a byte for two digits and one more."""
    return sum(len(name.encode()) + _size_of_value(value) for name, value in item.items())


def _size_of_value(value: Mapping[str, Any]) -> int:
    ((kind, held),) = value.items()
    match kind:
        case "S":
            return len(held.encode())
        case "N":
            return 1 + -(-len(held.lstrip("-0").replace(".", "")) // 2)
        case "B":
            return len(held)
        case "BOOL" | "NULL":
            return 1
        case "NS":
            return sum(_size_of_value({"N": one}) for one in held)
        case "L":
            return 3 + sum(1 + _size_of_value(one) for one in held)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _size_of_value(one) for name, one in held.items())
    raise AssertionError(f"no item of ours has this: {kind}")


def write_units(size: int) -> int:
    """Of a write of an item of so many bytes."""
    return max(1, -(-size // _WRITE_BYTES))


class Metered(Store):
    """A connection that counts calls and units; `spent` grows."""

    def __init__(self, inner: Store) -> None:
        super().__init__("us-east-1", connection=inner.connection)
        self.spent: Counter[str] = Counter()
        self._lock = threading.RLock()

    def call(self, operation: str, arguments: Mapping[str, Any], signed_ms: int | None = None) -> dict[str, Any]:
        """Counts, then calls. One call at a time: moto is not made for threads."""
        with self._lock:
            doomed = [self._item(table, key) for table, key in _deleted(operation, arguments)]
            due = self._due_before(operation, arguments)
            answer = super().call(operation, arguments, signed_ms)
            self.spent[operation] += 1
            twice = 2 if operation == "TransactWriteItems" else 1
            self.spent["write_units"] += twice * sum(write_units(size_of(item)) for item in doomed)
            self.spent["write_units"] += sum(map(_in_index, [*doomed, *due]))
            self.spent["write_units"] += self._written(operation, arguments)
            self.spent["read_units"] += self._read(operation, arguments, answer)
            return answer

    def _item(self, table: str, key: Mapping[str, Any]) -> dict[str, Any]:
        item: dict[str, Any] = super().call("GetItem", {"TableName": table, "Key": key}).get("Item", {})
        return item

    def _due_before(self, operation: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Returns the follower's row that a put replaces if it is in the index of those that are due, and will not be as
        it was: the index then loses a row.
        """
        item = arguments.get("Item", {})
        if operation != "PutItem" or not {"log_id", "id"} <= item.keys():
            return []
        old = self._item(arguments["TableName"], {name: item[name] for name in ("log_id", "id")})
        return [old] if old.get("due_ms") != item.get("due_ms") else []

    def _written(self, operation: str, arguments: Mapping[str, Any]) -> int:
        match operation:
            case "PutItem":
                item = arguments["Item"]
                return write_units(size_of(item)) + _in_index(item)
            case "UpdateItem":
                return write_units(size_of(self._item(arguments["TableName"], arguments["Key"])))
            case "TransactWriteItems":
                members = arguments["TransactItems"]
                puts = [member["Put"]["Item"] for member in members if "Put" in member]
                others = [
                    member[kind] for member in members for kind in ("ConditionCheck", "Update") if kind in member
                ]
                # A check is billed as a write of the item that it is about.
                items = puts + [self._item(other["TableName"], other["Key"]) for other in others]
                return 2 * sum(write_units(size_of(item)) for item in items) + sum(map(_in_index, puts))
        return 0

    def _read(self, operation: str, arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
        match operation:
            case "GetItem":
                size = size_of(answer.get("Item", {}))
            case "Query":
                size = sum(map(size_of, answer["Items"]))
            case "BatchGetItem":
                return sum(
                    _read_units(0, asked) * (len(asked["Keys"]) - len(answer["Responses"].get(table, ())))
                    + sum(_read_units(size_of(item), asked) for item in answer["Responses"].get(table, ()))
                    for table, asked in arguments["RequestItems"].items()
                )
            case _:
                return 0
        return _read_units(size, arguments)


def _read_units(size: int, arguments: Mapping[str, Any]) -> float:
    units = max(1, -(-size // _READ_BYTES))
    return units if arguments.get("ConsistentRead") else units / 2


def _deleted(operation: str, arguments: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields table and key of what a call deletes: a delete is billed by the size of what it deletes."""
    match operation:
        case "DeleteItem":
            yield arguments["TableName"], arguments["Key"]
        case "BatchWriteItem":
            for table, requests in arguments["RequestItems"].items():
                yield from ((table, request["DeleteRequest"]["Key"]) for request in requests)
        case "TransactWriteItems":
            deletes = (member["Delete"] for member in arguments["TransactItems"] if "Delete" in member)
            yield from ((delete["TableName"], delete["Key"]) for delete in deletes)


def _in_index(item: Item) -> int:
    """Returns the write units of an item's row in the sparse index of its table that holds whole items."""
    return write_units(_INDEX_BYTES + size_of(item)) if _INDEXED & item.keys() else 0


class MeteredObjects:
    """The port `headrace.objects.Objects` in memory, counting requests and bytes; `spent` grows."""

    def __init__(self) -> None:
        self.inner = MemoryObjects()
        self.spent: Counter[str] = Counter()
        self.written: dict[str, int] = {}

    def get(self, key: str) -> bytes:
        """Gets an object; counts one GET."""
        data = self.inner.get(key)
        self._got(data)
        return data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Gets a range of an object; counts one GET."""
        data = self.inner.get_range(key, start, length)
        self._got(data)
        return data

    def get_ranges(self, ranges: Sequence[Range], /) -> list[bytes]:
        """Gets ranges; counts one GET for each."""
        return [self.get_range(*one) for one in ranges]

    def _got(self, data: bytes) -> None:
        self.spent["get"] += 1
        self.spent["get_bytes"] += len(data)

    def put(self, key: str, data: bytes) -> None:
        """One PUT."""
        self._put(key, data)
        self.inner.put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        """Counts one PUT."""
        self._put(key, data)
        return self.inner.create(key, data)

    def _put(self, key: str, data: bytes) -> None:
        self.spent["put"] += 1
        self.spent["put_bytes"] += len(data)
        self.written[key] = len(data)

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Lists keys; counts one LIST."""
        self.spent["list"] += 1
        return self.inner.list(prefix, after=after)

    def delete(self, keys: Iterable[str]) -> None:
        """Free of charge."""
        self.inner.delete(keys)


class Meters:
    """The stores' counters as one."""

    def __init__(self, store: Metered, objects: MeteredObjects) -> None:
        self._counters: tuple[Counter[str], ...] = (store.spent, objects.spent)

    def of(self, operation: Callable[[], object]) -> dict[str, float]:
        """Runs an operation; returns what it spends by name, sorted, without zeros."""
        with self.during() as spent:
            operation()
        return spent

    @contextmanager
    def during(self) -> Iterator[dict[str, float]]:
        """Yields what is spent inside the block; complete when it ends."""
        before: Counter[str] = sum(self._counters, Counter())
        spent: dict[str, float] = {}
        yield spent
        after: Counter[str] = sum(self._counters, Counter())
        spent.update({name: after[name] - before[name] for name in sorted(after) if after[name] > before[name]})
