"""Stores that count what AWS would bill: requests, and units by the sizes of items (DynamoDB's documented rules)."""

from __future__ import annotations

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

    def call(self, operation: str, arguments: Mapping[str, Any], signed_ms: int | None = None) -> dict[str, Any]:
        """Counts, then calls."""
        doomed = self._doomed(operation, arguments)
        answer = super().call(operation, arguments, signed_ms)
        self.spent[operation] += 1
        self.spent["write_units"] += self._written(operation, arguments) + sum(map(write_units, doomed))
        self.spent["read_units"] += self._read(operation, arguments, answer)
        return answer

    def _written(self, operation: str, arguments: Mapping[str, Any]) -> int:
        match operation:
            case "PutItem":
                item = arguments["Item"]
                units = write_units(size_of(item))
                return units + (write_units(_INDEX_BYTES + size_of(item)) if "due_queue" in item else 0)
            case "UpdateItem":
                found = super().call("GetItem", {"TableName": arguments["TableName"], "Key": arguments["Key"]})
                return write_units(size_of(found["Item"]))
            case "TransactWriteItems":
                puts = [member["Put"] for member in arguments["TransactItems"] if "Put" in member]
                checks = [one["ConditionCheck"] for one in arguments["TransactItems"] if "ConditionCheck" in one]
                assert len(puts) + len(checks) == len(arguments["TransactItems"]), "nothing else is measured"
                listed = [put["Item"] for put in puts if "living_in" in put["Item"]]
                in_index = sum(write_units(_INDEX_BYTES + size_of(item)) for item in listed)
                items = [put["Item"] for put in puts] + [self._checked(check) for check in checks]
                return 2 * sum(write_units(size_of(item)) for item in items) + in_index
        return 0

    def _checked(self, check: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the item that a condition is about: a check is billed as a write of it."""
        key = {"TableName": check["TableName"], "Key": check["Key"]}
        item: dict[str, Any] = super().call("GetItem", key).get("Item", {})
        return item

    def _doomed(self, operation: str, arguments: Mapping[str, Any]) -> list[int]:
        """Sizes of what a call deletes: that is what a delete is billed by."""
        match operation:
            case "DeleteItem":
                keys = [(arguments["TableName"], arguments["Key"])]
            case "BatchWriteItem":
                keys = [
                    (table, request["DeleteRequest"]["Key"])
                    for table, requests in arguments["RequestItems"].items()
                    for request in requests
                ]
            case _:
                return []
        found = [super(Metered, self).call("GetItem", {"TableName": table, "Key": key}) for table, key in keys]
        sizes = [size_of(answer.get("Item", {})) for answer in found]
        in_index = [
            _INDEX_BYTES + size_of(answer["Item"]) for answer in found if "due_queue" in answer.get("Item", {})
        ]
        return sizes + in_index

    def _read(self, operation: str, arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
        match operation:
            case "GetItem":
                size = size_of(answer.get("Item", {}))
            case "Query":
                size = sum(map(size_of, answer["Items"]))
            case _:
                return 0
        units = max(1, -(-size // _READ_BYTES))
        return units if arguments.get("ConsistentRead") else units / 2


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
