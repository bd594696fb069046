"""Tables of a single machine: conditions and updates, what is refused, and what follows from an item."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.clock import SystemClock
from headrace.errors import SignatureExpired
from headrace.tables.items import TransactionCancelled, n, s
from local.machine.database import Database
from local.machine.expressions import holds, parse_condition, parse_update, updated
from local.machine.shapes import Index, Shape
from local.machine.tables import SqliteStore, declare_table

KEYS = (("id", "S"), ("at", "N"))


def put(store: SqliteStore, name: str, at: int, **more: Any) -> None:
    store.call("PutItem", {"TableName": "t", "Item": {"id": s(name), "at": n(at), **more}})


@pytest.mark.parametrize(
    "text",
    [
        "a <> :b",
        "NOT a = :b",
        "size(a) > :b",
        "a.b = :c",
        "a IN (:b)",
        "a = b",
        "contains(a, :b)",
        ":a = :b",
        "a = :b AND",
        "(a = :b",
        "a = :b c",
        "",
    ],
)
def test_other_conditions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|supported"):
        parse_condition(text)


@pytest.mark.parametrize("text", ["SET a = if_not_exists(a, :b)", "SET a = a + :b", "DELETE a :b", "SET a", "ADD a"])
def test_other_updates_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|supported"):
        parse_update(text)


def test_values_of_two_types_are_not_compared() -> None:
    with pytest.raises(ValueError, match="of type N, not S"):
        holds(parse_condition("a < :b"), {"a": n(1)}, {}, {":b": s("1")})
    with pytest.raises(ValueError, match="not added"):
        updated(parse_update("ADD a :b"), {"a": s("1")}, {}, {":b": n(1)})


def test_numbers_are_compared_as_numbers() -> None:
    for smaller, larger in ((9, 10), (-2, 1), (2**70, 2**70 + 1)):
        assert holds(parse_condition("a < :b"), {"a": n(smaller)}, {}, {":b": n(larger)})


def test_a_call_that_was_signed_long_ago_is_refused(database: Database) -> None:
    declare_table(database, "t", Shape(KEYS))
    store, now_ms = SqliteStore(database), SystemClock().now_ms()
    arguments = {"TableName": "t", "Item": {"id": s("a"), "at": n(1)}}
    with pytest.raises(SignatureExpired):
        store.call("PutItem", arguments, now_ms - 301_000)
    assert store.call("GetItem", {"TableName": "t", "Key": arguments["Item"]}) == {}
    store.call("PutItem", arguments, now_ms - 290_000)
    assert store.call("GetItem", {"TableName": "t", "Key": arguments["Item"]}) == {"Item": arguments["Item"]}


def test_the_refused_member_of_a_transaction_tells_its_item_and_nothing_is_written(database: Database) -> None:
    declare_table(database, "t", Shape(KEYS))
    store = SqliteStore(database)
    put(store, "a", 1, v=n(7))
    new = {"Put": {"TableName": "t", "Item": {"id": s("b"), "at": n(1)}}}
    taken = {
        "Put": {
            "TableName": "t",
            "Item": {"id": s("a"), "at": n(1)},
            "ConditionExpression": "attribute_not_exists(id)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }
    with pytest.raises(TransactionCancelled) as refused:
        store.call("TransactWriteItems", {"TransactItems": [new, taken]})
    standing = {"id": s("a"), "at": n(1), "v": n(7)}
    assert refused.value.reasons == [("None", None), ("ConditionalCheckFailed", standing)]
    assert store.call("GetItem", {"TableName": "t", "Key": {"id": s("b"), "at": n(1)}}) == {}
    with pytest.raises(ValueError, match="about one item"):
        store.call("TransactWriteItems", {"TransactItems": [new, new]})


def test_what_dynamodb_would_refuse_is_refused(database: Database) -> None:
    declare_table(database, "t", Shape(KEYS, {"by": Index((("by", "S"),), keys_only=True)}))
    store = SqliteStore(database)
    room = 400 * 1024 - len("ida") - len("at") - 2 - len("v")
    put(store, "a", 1, v=s("x" * room))
    for more in (
        {"v": s("x" * (room + 1))},
        {"w": {"L": [n(1), {"M": {"a": s("x" * 409_600)}}]}},
        {"by": s("x" * 2049)},
    ):
        with pytest.raises(ValueError, match=r"larger than|too long"):
            put(store, "a", 2, **more)
    with pytest.raises(ValueError, match="too long"):
        put(store, "x" * 2049, 1)
    members = [{"Delete": {"TableName": "t", "Key": {"id": s("a"), "at": n(at)}}} for at in range(101)]
    store.call("TransactWriteItems", {"TransactItems": members[:100]})
    with pytest.raises(ValueError, match="more than 100"):
        store.call("TransactWriteItems", {"TransactItems": members})


def test_an_argument_that_would_be_ignored_is_refused_before_anything_is_written(database: Database) -> None:
    declare_table(database, "t", Shape(KEYS))
    store = SqliteStore(database)
    key = {"TableName": "t", "Key": {"id": s("a"), "at": n(1)}}
    item = {"TableName": "t", "Item": key["Key"]}
    query = {"TableName": "t", "KeyConditionExpression": "id = :a", "ExpressionAttributeValues": {":a": s("a")}}
    for operation, arguments in (
        ("PutItem", {**item, "ReturnValues": "ALL_OLD"}),
        ("PutItem", {**item, "Expected": {}}),
        ("UpdateItem", {**key, "AttributeUpdates": {}}),
        ("GetItem", {**key, "AttributesToGet": ["id"]}),
        ("Query", {**query, "FilterExpression": "id = :a"}),
        ("TransactWriteItems", {"TransactItems": [{"Replace": item}]}),
    ):
        with pytest.raises(ValueError, match="not supported"):
            store.call(operation, arguments)
    assert store.call("Query", query)["Items"] == []


def test_items_get_their_time_from_a_newer_template(database: Database) -> None:
    declare_table(database, "t", Shape(KEYS))
    put(SqliteStore(database), "a", 1, gone_at=n(100), later_at=n(200))
    for name, now_s, removed in (("gone_at", 50, 0), ("later_at", 150, 0), ("", 300, 0), ("gone_at", 150, 1)):
        declare_table(database, "t", Shape(KEYS, expires=name))
        assert SqliteStore(database).expire(now_s) == removed, name


def test_an_index_that_a_newer_template_has_is_filled(database: Database) -> None:
    declare_table(database, "t", Shape(KEYS))
    store = SqliteStore(database)
    for at in (3, 1, 2):
        put(store, "a", at, shard=s("x"), due=n(10 - at))
    put(store, "a", 4)
    declare_table(database, "t", Shape(KEYS, {"due": Index((("shard", "S"), ("due", "N")), keys_only=True)}))
    query = {
        "TableName": "t",
        "IndexName": "due",
        "KeyConditionExpression": "shard = :s AND due <= :d",
        "ExpressionAttributeValues": {":s": s("x"), ":d": n(8)},
    }
    found = SqliteStore(database).call("Query", query)["Items"]
    assert [(item["at"]["N"], item["due"]["N"]) for item in found] == [("3", "7"), ("2", "8")]
    with pytest.raises(ValueError, match="other keys"):
        declare_table(database, "t", Shape(KEYS[:1]))


def test_an_item_is_removed_when_its_time_is_over(database: Database) -> None:
    declare_table(database, "t", Shape(KEYS, expires="expires_at"))
    store = SqliteStore(database)
    put(store, "a", 1, expires_at=n(100))
    put(store, "a", 2, expires_at=n(200))
    put(store, "a", 3)
    assert (store.expire(150), store.expire(150)) == (1, 0)
    query = {
        "TableName": "t",
        "KeyConditionExpression": "id = :id",
        "ExpressionAttributeValues": {":id": s("a")},
    }
    assert [item["at"]["N"] for item in store.call("Query", query)["Items"]] == ["2", "3"]
