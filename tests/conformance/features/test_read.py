"""What `/get` and `/batch_get` answer, and for which keys."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conformance.contract.client import expect, shown
from tests.conformance.features.client import AS_OF, Namespace, answered, refused, txn
from tests.unit.features.pipeline.documents import count, derived, event, table, total

TWO = {"c": count(), "s": total()}
LIMIT = 10_000


def as_of(answer: Any) -> tuple[int, dict[str, int]]:
    """Returns the time and the offsets that an answer says it includes."""
    now, *lanes = answer.headers[AS_OF].split(";")
    return int(now), {name: int(offset) for name, _, offset in (lane.partition("=") for lane in lanes)}


@pytest.fixture(scope="module")
def reading(shared: Namespace) -> Namespace:
    """Returns a namespace with a table of a composite key, in which tests only read."""
    shared.has(event(), table(), table("P", keys=["user", "n", "ok"]))
    return shared.filled(txn("x|y", n=3), txn("x", n=3), txn("x", n=3))


def test_a_row_is_flat_and_that_of_an_untouched_key_is_empty(space: Namespace) -> None:
    space.has(event(), table(agg=TWO), table("G", keys=[], agg=TWO))
    assert space.get("U", "a").content == space.get("G", "").content == b"{}"
    space.filled(txn(amount=2.5))
    assert space.get("U", "a").content == space.get("G", "").content == b'{"c":1,"s":2.5}'
    assert space.get("U", "b").content == b"{}"


def test_features_narrow_a_row(space: Namespace) -> None:
    space.has(event(), table(agg=TWO)).filled(txn())
    assert space.get(features=["s"]).content == b'{"s":1.0}'
    assert space.get(features=["s", "c"]).content == b'{"s":1.0,"c":1}'
    assert space.get(features=[]).content == b"{}"
    assert space.get(features=None).content == b'{"c":1,"s":1.0}'
    assert space.get("U", "cold", features=["s"]).content == b"{}"


def test_an_unknown_feature_or_table_is_refused(space: Namespace) -> None:
    space.has(event(), table(agg=TWO), derived("D")).filled(txn())
    for key in ("a", "cold"):
        assert "zz" in refused(space.get("U", key, features=["c", "zz"]), 404, "feature_not_found")
    for name in ("Nope", "u", "Txn", "D", ""):
        refused(space.get(name), 404, "unknown_table")


def test_a_batch_is_answered_in_order_with_one_error_for_each_bad_entry(space: Namespace) -> None:
    space.has(event(), table(agg=TWO), table("V", keys=["n"])).filled(txn("a"), txn("b", n=2))
    narrow = {"table": "U", "key": "b", "features": ["c"]}
    requests = [("U", "b"), ("U", "cold"), ("V", 2), ("Nope", "a"), ("U", "a|b"), narrow, ("U", "b"), ("V", "x")]
    results = answered(space.get_all(*requests))["results"]
    row = {"c": 1, "s": 1.0}
    unknown, arity, kind = results[3], results[4], results[7]
    assert [results[place] for place in (0, 1, 2, 5, 6)] == [row, {}, {"c": 1}, {"c": 1}, row]
    for error, code in ((unknown, "unknown_table"), (arity, "key_parse_failure"), (kind, "key_parse_failure")):
        assert error["error"].keys() == {"code", "message"} and error["error"]["code"] == code
    assert space.get_all().content == b'{"results":[]}'


def test_an_unknown_feature_refuses_a_whole_batch(space: Namespace) -> None:
    space.has(event(), table(agg=TWO)).filled(txn())
    bad = {"table": "U", "key": "a", "features": ["zz"]}
    refused(space.get_all(("U", "a"), bad), 404, "feature_not_found")


@pytest.mark.sensitive("batch reads of the table")
def test_a_batch_may_be_large(space: Namespace) -> None:
    space.has(event(), table())
    answered(space.post("/push/Txn/batch", [txn(f"u{number}") for number in range(105)]))
    requests = [("U", f"u{number}") for number in range(110)]  # DynamoDB reads 100 rows at once
    rows = answered(space.get_all(*requests, *requests[:50]))["results"]
    assert rows == [{"c": 1}] * 105 + [{}] * 5 + [{"c": 1}] * 50


def test_a_batch_is_limited(space: Namespace) -> None:
    space.has(event(), table())
    refused(space.get_all(*[("U", "a")] * (LIMIT + 1)), 413, "payload_too_large")
    assert answered(space.get_all(*[("U", "a")] * LIMIT)) == {"results": [{}] * LIMIT}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"table": "U"},
        {"key": "a"},
        {"table": 5, "key": "a"},
        {"table": "U", "key": None},
        {"table": "U", "key": {"user": "a"}},
        {"table": "U", "key": "a", "features": "c"},
        {"table": "U", "key": "a", "features": [5]},
        5,
    ],
)
def test_a_malformed_read_is_refused(reading: Namespace, body: Any) -> None:
    refused(reading.post("/get", body), 400, "invalid_request")
    for batch in ({"requests": [body]}, {"requests": body}, body):
        refused(reading.post("/batch_get", batch), 400, "invalid_request")


def test_another_consistency_is_refused(reading: Namespace) -> None:
    refused(reading.get(consistency="eventual"), 400, "invalid_request")
    refused(reading.get_all(consistency="eventual"), 400, "invalid_request")


def test_a_body_that_is_not_json_is_refused(reading: Namespace) -> None:
    for path in ("/get", "/batch_get"):
        for body in (b"", b"{", b"\xff"):
            refused(reading.post(path, body), 400, "invalid_json_body")


@pytest.mark.parametrize("key", ["x%7Cy|3|true", ["x|y", 3, True], ["x|y", "3", "true"], "x%7Cy|+3|true"])
def test_a_composite_key_is_joined_by_pipes_or_a_list(reading: Namespace, key: Any) -> None:
    rows = answered(reading.get_all(("P", key), ("P", "x|3|true"), ("P", "x|3|false")))["results"]
    assert rows == [{"c": 1}, {"c": 2}, {}]


@pytest.mark.parametrize(
    "key", ["", "x", "x|3", "x|3|true|y", [], ["x", 3], "x", 3, "x|y|true", "x|3.5|true", "x|3|1x"]
)
def test_a_key_of_another_form_is_refused(reading: Namespace, key: Any) -> None:
    refused(reading.get("P", key), 404, "key_parse_failure")


def test_each_type_can_be_a_key(space: Namespace) -> None:
    fields = {"s": "str", "i": "i64", "f": "f64", "b": "bool"}
    space.has(event("Ev", fields=fields), *(table(f"T{name}", upstream="Ev", keys=[name]) for name in fields))
    space.filled(
        {"s": "", "i": -3, "f": 1.0, "b": True}, {"s": "%", "i": 2**53 + 1, "f": 0.5, "b": False}, event="Ev"
    )
    for name, keys in {
        "Ts": ["", "%", [""]],
        "Ti": ["-3", -3, [-3], "9007199254740993", 2**53 + 1],
        "Tf": ["1", 1, 1.0, "1.0", "0.5", [0.5], "5e-1"],
        "Tb": ["true", True, "false", [False]],
    }.items():
        assert [space.row(name, key) for key in keys] == [{"c": 1}] * len(keys), name
    refused(space.get("Ts", "a\tb"), 404, "key_parse_failure")
    refused(space.get("Ti", "3x"), 404, "key_parse_failure")
    refused(space.get("Tb", "yes"), 404, "key_parse_failure")
    refused(space.get("Ts", "x" * 65_537), 404, "key_parse_failure")


def test_long_and_strange_keys_are_kept_apart(space: Namespace) -> None:
    users = ["é" * 600, "é" * 600 + "x", "#", "##", "%7C", "%", "😀", "a|b", "a", "a/b", "__proto__", "null"]
    space.has(event(), table(agg={"s": total("n")}))
    answered(space.post("/push/Txn/batch", [txn(user, n=number) for number, user in enumerate(users)]))
    rows = answered(space.get_all(*[("U", [user]) for user in users]))["results"]
    assert rows == [{"s": float(number)} for number in range(len(users))]


def test_reads_tell_the_time(space: Namespace) -> None:
    space.has(event(), table(agg={"since": {"op": "time_since"}, "age": {"op": "age"}})).filled(txn())
    for _ in range(3):
        for answer in (space.get(), space.get_all(("U", "a"), ("U", "a"))):
            now, lanes = as_of(answer)
            row, *others = answer.json().get("results", [answer.json()])
            assert lanes == {"Txn": 1} and others in ([], [row])
            assert abs(now - time.time_ns() // 1_000_000) < 5000
            assert row["since"] == row["age"] >= 0
    before = space.get_all(("U", "a")).json()["results"][0]["since"]
    time.sleep(0.05)  # the clock of `time_since`
    assert space.get_all(("U", "a")).json()["results"][0]["since"] >= before + 50, "time goes on without pushes"


def test_an_answer_says_which_events_it_has(space: Namespace) -> None:
    space.has(event(), event("Other"), table(), table("V", upstream="Other"))
    for number in range(1, 8):
        space.filled(txn())
        assert as_of(space.get())[1] == {"Txn": number}
    assert as_of(space.get("V"))[1] == {"Other": 0}
    answer = space.get_all(("U", "a"), ("V", "a"), ("Nope", "a"))
    assert as_of(answer)[1] == {"Txn": 7, "Other": 0}


@pytest.mark.sensitive("rows of the folder")
def test_a_stale_read_may_be_some_events_behind(space: Namespace) -> None:
    space.has(event(), table())
    for number in range(1, 6):
        space.filled(txn())
        assert space.row(consistency="strong") == {"c": number}
        assert space.row(consistency="stale") in ({}, *({"c": earlier} for earlier in range(1, number + 1)))
        rows = answered(space.get_all(("U", "a"), ("U", "cold"), consistency="stale"))["results"]
        assert rows[0] in ({}, *({"c": earlier} for earlier in range(1, number + 1))) and rows[1] == {}


def test_legacy_reads_name_a_table_or_a_feature(space: Namespace) -> None:
    space.has(event(), table(agg=TWO), table("P", keys=["user", "n"], agg={"pairs": count()}), table("G", keys=[]))
    space.filled(txn("a/b c", n=3))
    assert space.send("GET", "/get/U/a%2Fb%20c").content == b'{"c":1,"s":1.0}'
    assert space.send("GET", "/get/s/a/b%20c").content == b'{"value":1.0}'
    assert space.send("GET", "/get/pairs/a%2Fb%20c%7C3").content == b'{"value":1}'
    for path in ("/get/U/cold", "/get/s/cold"):
        refused(space.send("GET", path), 404, "key_not_found")
    refused(space.send("GET", "/get/nothing/a"), 404, "feature_not_found")
    refused(space.send("GET", "/get/P/a"), 404, "key_parse_failure")
    assert expect(space.send("GET", "/get/G/"), 200).json() == {"c": 1}, shown(space.send("GET", "/get/G/"))


def test_answers_may_be_compressed(space: Namespace) -> None:
    space.has(event(), table())
    body = {"requests": [{"table": "U", "key": f"u{number}"} for number in range(500)]}
    answer = space.post("/batch_get", body, {"Content-Type": "application/json", "Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip" and answered(answer)["results"] == [{}] * 500
    answer = space.post("/batch_get", body, {"Content-Type": "application/json", "Accept-Encoding": "identity"})
    assert "content-encoding" not in answer.headers and answered(answer)["results"] == [{}] * 500


def test_a_new_key_is_read_by_every_process_once_it_is_registered(space: Namespace) -> None:
    space.has(event(), table(keys=["user"])).filled(txn())
    for _ in range(3):  # each process knows the table as it was
        assert space.row("U", "a") == {"c": 1}
    space.has(table(keys=["user", "n"], agg={"d": count()}), force=True)
    for _ in range(3):
        assert space.row("U", "a|1") == {}
    space.filled(txn())
    for _ in range(3):
        assert space.row("U", "a|1", features=["d"]) == {"d": 1}
        refused(space.get("U", "a"), 404, "key_parse_failure")
        refused(space.get("U", "a|1", features=["c"]), 404, "feature_not_found")
