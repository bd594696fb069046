"""The single machine answers random calls of the forms that adapters make as the emulated DynamoDB does."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headrace.tables.dynamodb import Store
from headrace.tables.items import ConditionFailed, Item, TransactionCancelled, n, s
from local.machine import LocalMachine
from tests.support.aws import create_tables
from tests.support.machine import declare_tables

LOGS = ("a", "a", "a", "b")
IDS = ("x", "x#", "x#1", "x#10", "x#2", "é", "y", "\U0001f600", "~")
NUMBERS = (-10, -9, 0, 9, 10)  # whose order is not that of their texts
CONDITIONS = (
    "attribute_not_exists(log_id)",
    "attribute_exists(due_ms)",
    "version = :n",
    "attribute_not_exists(version) OR version <= :n",
    "log_id = :log AND attribute_not_exists(due_ms)",
    "(version > :n OR version < :n) AND attribute_exists(log_id)",
    "#data = :data",
    "begins_with(id, :id)",
    "version BETWEEN :n AND :m",
)
UPDATES = (
    "SET version = :n",
    "SET version = :n, #data = :data",
    "ADD held :n",
    "ADD rung :set SET version = :n",
    "REMOVE rung",
    "REMOVE due_ms, due_shard",
    "ADD held :n, taken :m REMOVE version",
)


class Calls:
    """Random calls of one seed, each for any table of the shape of `follows`."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def _values(self) -> Item:
        random = self._random
        low, high = sorted(random.choices(NUMBERS, k=2))
        return {
            ":n": n(low),
            ":m": n(high),
            ":log": s(random.choice(LOGS)),
            ":id": s(random.choice(IDS)),
            ":data": {"B": random.choice((b"", b"\x00", b"\xff"))},
            ":set": {"NS": [str(number) for number in sorted(random.sample(range(12), 2))]},
        }

    def _key(self) -> Item:
        return {"log_id": s(self._random.choice(LOGS)), "id": s(self._random.choice(IDS))}

    def _item(self) -> Item:
        random = self._random
        item = {**self._key(), "version": n(random.choice(NUMBERS)), "data": {"B": random.choice((b"", b"\xff"))}}
        if random.random() < 0.6:
            item |= {"due_shard": s("0"), "due_ms": n(random.choice(NUMBERS))}
        return item

    def member(self) -> dict[str, Any]:
        """Returns a member of a transaction."""
        random = self._random
        kind = random.choice(("Put", "Put", "Update", "Delete", "ConditionCheck"))
        expressions = {}
        if kind == "Update":
            expressions["UpdateExpression"] = random.choice(UPDATES)
        if kind == "ConditionCheck" or random.random() < 0.8:
            expressions["ConditionExpression"] = random.choice(CONDITIONS)
            expressions["ReturnValuesOnConditionCheckFailure"] = random.choice(("NONE", "ALL_OLD"))
        asked: dict[str, Any] = {"Item": self._item()} if kind == "Put" else {"Key": self._key()}
        used = " ".join(expressions.values())
        values = {name: value for name, value in self._values().items() if name in used}
        return {
            kind: {
                **asked,
                **expressions,
                **({"ExpressionAttributeValues": values} if values else {}),
                **({"ExpressionAttributeNames": {"#data": "data"}} if "#data" in used else {}),
            }
        }

    def query(self) -> dict[str, Any]:
        """Returns a query of the table or, without a limit, of its index, where equal keys have no order."""
        random, values = self._random, self._values()
        if random.random() < 0.3:
            condition = random.choice(("due_shard = :zero", "due_shard = :zero AND due_ms <= :n"))
            more: dict[str, Any] = {"IndexName": "due"}
        else:
            tails = ("", " AND begins_with(id, :id)", " AND id > :id", " AND id <= :id", " AND id = :id")
            condition = "log_id = :log" + random.choice(tails)
            more = {"Limit": random.randint(1, 4)}
        values[":zero"] = s("0")
        used = {name: value for name, value in values.items() if name in condition.split() or f"{name})" in condition}
        if random.random() < 0.3:
            more |= {"ProjectionExpression": "log_id, #data", "ExpressionAttributeNames": {"#data": "data"}}
        return {
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": used,
            "ScanIndexForward": random.random() < 0.5,
            **more,
        }

    def next(self) -> tuple[str, dict[str, Any]]:
        """Returns an operation and its arguments, which name no table."""
        random = self._random
        match random.choice(("write", "write", "transact", "query", "get", "batch", "delete")):
            case "transact":
                members = [self.member() for _ in range(random.randint(2, 4))]
                keys = [_key(asked) for member in members for asked in member.values()]
                if len({(key["log_id"]["S"], key["id"]["S"]) for key in keys}) < len(keys):
                    return self.next()
                return "TransactWriteItems", {"TransactItems": members}
            case "query":
                return "Query", self.query()
            case "get":
                return "GetItem", {"Key": self._key()}
            case "batch":
                return "BatchGetItem", {"Keys": [{"log_id": s("a"), "id": s(one)} for one in random.sample(IDS, 4)]}
            case "delete":
                keys = [{"log_id": s("b"), "id": s(one)} for one in random.sample(IDS, 2)]
                return "BatchWriteItem", {"Deletes": [{"DeleteRequest": {"Key": key}} for key in keys]}
        ((kind, asked),) = self.member().items()
        if kind == "ConditionCheck":
            return self.next()
        if asked.get("UpdateExpression", "").startswith("REMOVE"):  # of others moto tells only what has changed
            asked["ReturnValues"] = "UPDATED_OLD"
        return f"{kind}Item", asked


def _key(asked: dict[str, Any]) -> Item:
    whole: Item = asked.get("Item") or asked["Key"]
    return {name: whole[name] for name in ("log_id", "id")}


def plain(value: Any) -> Any:
    """Returns an answer with sets in order, and bytes as such."""
    if isinstance(value, dict):
        if isinstance(value.get("NS"), list):
            return {"NS": sorted(value["NS"])}
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def ask(store: Store, table: str, operation: str, asked: dict[str, Any]) -> Any:
    """Makes a call on a table, and returns what the adapters see of the answer."""
    if operation == "Query":
        found = list(map(plain, store.query({"TableName": table, **asked})))
        return sorted(found, key=repr) if "IndexName" in asked else found
    if operation == "TransactWriteItems":
        members = [
            {kind: {"TableName": table, **one} for kind, one in each.items()} for each in asked["TransactItems"]
        ]
        asked = {"TransactItems": members}
    elif operation == "BatchGetItem":
        asked = {"RequestItems": {table: asked}}
    elif operation == "BatchWriteItem":
        asked = {"RequestItems": {table: asked["Deletes"]}}
    else:
        asked = {"TableName": table, **asked}
    try:
        answer = store.call(operation, asked)
    except ConditionFailed as exc:
        return "condition failed", plain(exc.item)
    except TransactionCancelled as exc:
        return "cancelled", plain(exc.reasons)
    items = [*answer.get("Responses", {}).get(table, ())]
    return plain(answer.get("Item")), plain(answer.get("Attributes") or {}), sorted(map(plain, items), key=repr)


@pytest.mark.parametrize("seed", range(4))
def test_the_single_machine_answers_as_dynamodb(store: Store, machine: LocalMachine, seed: int) -> None:
    calls = Calls(Random(seed))
    theirs, ours = create_tables()["follows"], declare_tables(machine)["follows"]
    for number in range(150):
        operation, asked = calls.next()
        expected = ask(store, theirs, operation, asked)
        assert ask(machine.store(), ours, operation, asked) == expected, (number, operation, asked)
