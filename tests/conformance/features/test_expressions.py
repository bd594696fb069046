"""Expressions, and the operators of a chain: what everything downstream sees."""

from __future__ import annotations

from typing import Any

from tests.conformance.features.client import Namespace, answered, rejected, txn
from tests.unit.features.pipeline.documents import FIELDS, count, derived, event, table, total, where

EVENT = event(
    "Ev", fields={"k": "str", "n": "i64", "x": "f64", "s": "str", "ok": "bool", "no": "f64"}, optional=["no"]
)
DATA = {"k": "a", "n": 7, "x": 2.5, "s": "it's", "ok": True}
VALUES: dict[str, Any] = {
    "(n + 1)": 8,
    "(n - 10)": -3,
    "(n * n)": 49,
    "(n / 2)": 3,
    "(-7 / 2)": -3,
    "(n / 2.0)": 3.5,
    "(n / 0)": None,
    "(x / 0)": None,
    "(x + n)": 9.5,
    "(n + 9223372036854775807)": 2**63 - 1,
    "(1e308 * 10)": None,
    "(n > 6.5)": True,
    "(n >= 7)": True,
    "(n < 7)": False,
    "(n <= 7.0)": True,
    "(n == 7.0)": True,
    "(n != 7)": False,
    "(s == 'it\\'s')": True,
    '(s == "it\'s")': True,
    "(s < 'j')": True,
    "('a\\\\b' != 'ab')": True,
    "((n > 1) and (x > 1))": True,
    "((n > 9) or ok)": True,
    "(not ok)": False,
    "(Ev.n == 7)": True,
    "true": True,
    "12": 12,
    "-3": -3,
    "1.5": 1.5,
    "'text'": "text",
    "cast(x, int)": 2,
    "cast(-2.9, int)": -2,
    "cast(ok, int)": 1,
    "cast(n, str)": "7",
    "cast('x', int)": None,
    "cast('7', int)": 7,
    "cast(n, float)": 7.0,
    "cast(n, bool)": True,
    "isnull(no)": True,
    "isnull(n)": False,
    "(no == null)": True,
    "(no != null)": False,
    "(n == null)": False,
    "(no > 1)": None,
    "(no + 1)": None,
    "((no > 1) and ok)": None,
    "((no > 1) and false)": False,
    "((no > 1) or ok)": True,
    "(not (no > 1))": None,
    "quadkey(47.61, -122.33, 9)": "021230030",
    "cast(null, str)": None,
}
WRONG = [
    "", "n > 3", "(n > 3", "(n > 3))", "((n > 1) and (n > 2) and ok)", "not ok", "(nope > 1)", "(Other.n > 1)", "(n + s)",
    "(ok and n)", "(s > 1)", "(n == 'a')", "cast(n, date)", "cast(n)", "isnull()", "quadkey(x, x, 31)", "'open", "(n ** 2)",
    "(n == 9223372036854775808)", "'a\nb'", 5, None, "n",
]  # fmt: skip


def test_an_expression_has_its_value(space: Namespace) -> None:
    columns = {f"c{place}": text for place, text in enumerate(VALUES)}
    last = {f"f{name}": {"op": "last", "params": {"field": name}} for name in columns}
    space.has(EVENT, table("T", {"op": "with_columns", "exprs": columns}, upstream="Ev", keys=["k"], agg=last))
    answered(space.push(DATA, "Ev"))
    found = dict(zip(VALUES, space.row("T").values(), strict=True))
    wrong = {
        text: (found[text], value)
        for text, value in VALUES.items()
        if (found[text], type(found[text])) != (value, type(value))
    }
    assert wrong == {}


def test_a_filter_and_a_condition_take_what_is_true_alone(space: Namespace) -> None:
    conditions = [
        "ok",
        "(not ok)",
        "(no > 1)",
        "(not (no > 1))",
        "((no > 1) or ok)",
        "null",
        "(no == null)",
        "(no == no)",
    ]
    tables = [table(f"T{at}", where(text), upstream="Ev", keys=[]) for at, text in enumerate(conditions)]
    counts = table(
        "W", upstream="Ev", keys=[], agg={f"c{at}": count(where=text) for at, text in enumerate(conditions)}
    )
    space.has(EVENT, *tables, counts)
    answered(space.push(DATA, "Ev"))
    kept = [1, 0, 0, 0, 1, 0, 1, 0]
    rows = answered(space.get_all(*[(f"T{at}", "") for at in range(len(kept))]))["results"]
    assert rows == [{"c": 1} if one else {} for one in kept]
    assert list(space.row("W", "").values()) == kept


def test_what_is_no_expression_is_refused(space: Namespace) -> None:
    space.has(EVENT)
    for text in WRONG:
        answer = space.register(table("T", {"op": "filter", "expr": text}, upstream="Ev", keys=["k"]), dry_run=True)
        rejected(answer, "invalid_expression", "nodes[0].ops[0].expr")


def test_a_condition_may_compare_what_a_filter_may_not(space: Namespace) -> None:
    space.has(EVENT)
    rejected(space.register(table("T", where("(s == 1)"), upstream="Ev", keys=["k"])), "invalid_expression")
    space.has(table("T", upstream="Ev", keys=["k"], agg={"c": count(where="(s == 1)"), "all": count()}))
    answered(space.push(DATA, "Ev"))
    assert space.row("T") == {"c": 0, "all": 1}


def test_an_expression_has_512_levels(space: Namespace) -> None:
    space.has(EVENT)
    deep = "(" * 511 + "(n + 1)" + " + 1)" * 511
    column = {"op": "with_columns", "exprs": {"deep": deep}}
    space.has(table("T", column, upstream="Ev", keys=["k"], agg={"v": {"op": "last", "params": {"field": "deep"}}}))
    answered(space.push(DATA, "Ev"))
    assert space.row("T") == {"v": 7 + 512}
    answer = space.register(table("V", where(f"(({deep} + 1) > 0)"), upstream="Ev", keys=["k"]))
    assert "512" in rejected(answer, "invalid_expression")


def last(field: str) -> dict[str, Any]:
    """Returns an aggregation that shows a field."""
    return {"op": "last", "params": {"field": field}}


CHAINS: list[tuple[dict[str, Any], dict[str, Any], list[Any]]] = [
    (where("(amount > 5)"), {"c": count()}, [{}, {"c": 1}]),
    ({"op": "select", "fields": ["user", "n"]}, {"v": last("n")}, [{"v": 1}, {"v": 2}]),
    ({"op": "drop", "fields": ["amount"]}, {"v": last("n")}, [{"v": 1}, {"v": 2}]),
    ({"op": "rename", "mapping": {"amount": "n", "n": "amount"}}, {"v": last("amount")}, [{"v": 1}, {"v": 2}]),
    ({"op": "with_columns", "exprs": {"n": "(n * 10)"}}, {"v": last("n")}, [{"v": 10}, {"v": 20}]),
    ({"op": "map", "exprs": {"z": "(n * 10)"}}, {"v": last("z")}, [{"v": 10}, {"v": 20}]),
    ({"op": "cast", "type_map": {"amount": "str"}}, {"v": last("amount")}, [{"v": "1.0"}, {"v": "9.0"}]),
    ({"op": "cast", "type_map": {"amount": "bool"}}, {"v": last("amount")}, [{"v": True}, {"v": True}]),
    ({"op": "fillna", "defaults": {"fee": 0.5}}, {"v": total("fee")}, [{"v": 0.5}, {"v": 3.0}]),
]


def test_operators_see_what_the_chain_makes(space: Namespace) -> None:
    tables = [table(f"T{place}", op, agg=agg) for place, (op, agg, _) in enumerate(CHAINS)]
    space.has(event(fields=FIELDS | {"fee": "f64"}, optional=["fee"]), *tables)
    space.filled(txn("a", amount=1, n=1), txn("b", amount=9, n=2) | {"fee": 3})
    requests = [(f"T{place}", user) for place in range(len(CHAINS)) for user in "ab"]
    rows = answered(space.get_all(*requests))["results"]
    assert rows == [row for _, _, pair in CHAINS for row in pair]


def test_a_key_is_that_of_the_chain(space: Namespace) -> None:
    prefix = {"op": "with_columns", "exprs": {"user": "cast(n, str)"}}
    renamed = {"op": "rename", "mapping": {"user": "who"}}
    filled = {"op": "fillna", "defaults": {"team": "none"}}
    space.has(
        event(fields=FIELDS | {"team": "str"}, optional=["team"]),
        table("U", prefix),
        table("V", renamed, keys=["who"]),
        table("W", filled, keys=["team"]),
    )
    space.filled(txn("a", n=5))
    assert [space.row("U", "5"), space.row("U", "a"), space.row("V", "a"), space.row("W", "none")] == [
        {"c": 1},
        {},
        {"c": 1},
        {"c": 1},
    ]


def test_derived_events_feed_what_names_them(space: Namespace) -> None:
    one = derived("One", where("(n > 1)"), {"op": "with_columns", "exprs": {"n": "(n * 10)"}})
    two = derived("Two", where("(One.n > 20)"), {"op": "map", "exprs": {"m": "(Txn.n + 1)"}}, upstream="One")
    space.has(event(), one, two, table("T", upstream="One", agg={"s": total("n")}))
    space.has(table("V", where("(Two.m > 0)"), upstream="Two", agg={"s": total("m"), "n": total("n")}))
    space.filled(txn(n=1), txn(n=2), txn(n=3))
    assert (space.row("T"), space.row("V")) == ({"s": 50.0}, {"s": 31.0, "n": 30.0})


def test_operators_are_applied_in_their_order(space: Namespace) -> None:
    double = {"op": "map", "exprs": {"n": "(n * 2)"}}
    space.has(event(), table("A", double, where("(n > 3)")), table("B", where("(n > 3)"), double))
    space.filled(txn(n=2))
    assert (space.row("A"), space.row("B")) == ({"c": 1}, {})
