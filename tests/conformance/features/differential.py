"""Replays the same requests at beava's server and at Headrace, and lists where they answer differently.

    .venv/bin/beava --memory-only --test-mode     # the server that PyPI's beava 0.0.6 ships, at port 8080
    uv run python -m tests.conformance.features.differential --peer http://127.0.0.1:8080

Each difference has a reason: a line of "Differences from beava 0.0.6" in docs/features.md. The exit code is 1 if one has
none, or if a reason has no difference any more.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from headrace.features.pipeline.ops import CATALOGUE
from tests.conformance.features import memory
from tests.conformance.features.client import alike
from tests.conformance.features.test_diff import LOGIN, NARROW
from tests.conformance.features.test_expressions import CHAINS, DATA, EVENT, VALUES, WRONG
from tests.conformance.features.test_operators import BAD, ROWS, VELOCITY, WINDOWED, params_of
from tests.conformance.features.test_operators import EVENT as POINTS
from tests.conformance.features.test_push import FIELDS, GOOD
from tests.conformance.features.test_register import CLICK, COUNTER, FEATURES, TXN
from tests.conformance.topics.client import Server
from tests.unit.features.pipeline.documents import FIELDS as TXN_FIELDS
from tests.unit.features.pipeline.documents import count, derived, event, table, total, where
from tests.unit.features.pipeline.test_captured import BIG, U1
from tests.unit.features.pipeline.test_captured import TXN as CAPTURED
from tests.unit.features.pipeline.test_refusals import REFUSED

DOCS = Path(__file__).parents[3] / "docs" / "features.md"
HEADING = "## Differences from beava 0.0.6"


class Step(NamedTuple):
    """One request; `name` is what reasons are given for."""

    name: str
    method: str
    path: str
    body: Any = None


class Answer(NamedTuple):
    """What of an answer is compared."""

    status: int
    document: Any


class Difference(NamedTuple):
    """A request that the servers answer differently."""

    step: Step
    peer: Answer
    ours: Answer
    reason: str | None


def register(name: str, *nodes: Any, **flags: Any) -> Step:
    return Step(name, "POST", "/register", {"nodes": list(nodes), **flags})


def push(name: str, data: Any, to: str = "Txn") -> Step:
    return Step(name, "POST", "/push", {"event": to, "data": data})


def get(name: str, of: str = "U", key: Any = "a", **more: Any) -> Step:
    return Step(name, "POST", "/get", {"table": of, "key": key, **more})


def txn(user: Any = "a", amount: Any = 1.0, n: Any = 1) -> dict[str, Any]:
    """Returns the data of an event of the fields that both servers know."""
    return {"user": user, "amount": amount, "n": n, "ok": True}


PLAIN_POINTS = event("Ev", fields=POINTS["schema"]["fields"])
PLAIN = event(fields={name: kind for name, kind in TXN_FIELDS.items() if kind != "json"})
"""`Txn` without its field of JSON."""


def scenarios() -> Iterator[list[Step]]:
    """Yields lists of requests, each for a server on which nothing is registered."""
    page = {"user_id": "alice", "card_id": "c", "merchant": "m", "ip": "::1"}
    yield [
        register("page/example", TXN, FEATURES),
        *[push("page/push", page | {"amount": amount}) for amount in (7.85, 42.15)],
        get("page/get", "UserTxnFeatures", "alice"),
        get("page/cold", "UserTxnFeatures", "bob"),
        register("register/again", TXN, FEATURES),
        register("register/forced again", TXN, FEATURES, force=True),
        Step("register/no content type", "POST", "/register", b'{"nodes":[]}'),
        Step("register/descriptors", "POST", "/register", {"descriptors": []}),
        Step("ping", "POST", "/ping", {}),
        register("register/empty list"),
        register("register/dry run", LOGIN, dry_run=True),
        register("register/incremental", CLICK, COUNTER),
    ]
    yield [
        register("force/first", PLAIN, table()),
        push("force/push", txn()),
        register("force/type change", NARROW, table()),
        register("force/type change forced", NARROW, table(), force=True),
        get("force/after"),
        register("force/window", NARROW, table(agg={"c": count(window="1h")})),
        register("force/where", NARROW, table(agg={"c": count(where="(n > 1)")})),
        register("force/new feature", NARROW, table(agg={"c": count(), "s": total("n")})),
        register("force/dependent forced", PLAIN, force=True),
    ]
    for nodes, code, path, said in REFUSED:
        if "digits" not in said:
            yield [register(f"refused/{code} {path} {said}", *nodes)]
    for op, changes, _, _ in BAD:
        agg = {"f": {"op": op, "params": params_of(op) | changes}}
        yield [register(f"params/{op} {changes}", POINTS, table("T", upstream="Ev", keys=["k"], agg=agg))]
    strict = event("Ev", fields={name: kind for name, kind in FIELDS.items() if name in "sifb"}, optional=[])
    good = {name: value for name, value in GOOD.items() if name in "sifb"}
    kept = {f"v{name}": {"op": "last", "params": {"field": name}} for name in "sifb"}
    changes: list[dict[str, Any]] = [
        *({"i": value} for value in (1, 2.0, 1.5, 2**63, -(2**63), "1", True, None)),
        *({"f": value} for value in (3, -0.0, 1e308, "1", True, None)),
        *({"s": value} for value in ("", "é", "a\tb", "a\nb", "a\x7fb", 1, None)),
        *({"b": value} for value in (False, 0, "true")),
        {"more": 1},
        {"event_time": 1},
    ]
    yield [
        register("push/event", strict, table("T", upstream="Ev", keys=["s"], agg=kept | {"c": count()})),
        *(push(f"push/{change}", good | change, "Ev") for change in changes),
        get("push/row", "T", "x"),
        push("push/unknown event", {}, "Nope"),
        Step("push/array", "POST", "/push", [good]),
        Step("push/no data", "POST", "/push", {"event": "Ev"}),
        Step("push/no json", "POST", "/push", b"{"),
        Step("push/legacy", "POST", "/push/Ev", good),
        Step("push/legacy sync", "POST", "/push-sync/Ev", good),
        Step("push/legacy unknown", "POST", "/push/Nope", good),
        Step("push/many", "POST", "/push_many", []),
        Step("push/GET", "GET", "/push"),
    ]
    run = uuid.uuid4().hex  # the peer keeps dedupe values across resets
    optional = event("Ev", fields={"u": "str", "x": "f64", "id": "str"}, optional=["x", "u"], dedupe_key="id")
    yield [
        register(
            "optional/event", optional, table("T", upstream="Ev", keys=["u"], agg={"c": count(), "s": total("x")})
        ),
        push("optional/null", {"u": "a", "id": run + "1", "x": None}, "Ev"),
        push("optional/absent", {"u": "a", "id": run + "2"}, "Ev"),
        push("optional/of another type", {"u": "a", "id": run + "3", "x": "2"}, "Ev"),
        push("dedupe/again", {"u": "a", "id": run + "2", "x": 5}, "Ev"),
        push("optional/null key", {"u": None, "id": run + "4"}, "Ev"),
        get("optional/row", "T", "a"),
        get("optional/row of null", "T", "null"),
        get("optional/row of the empty text", "T", ""),
    ]
    by = [table(f"T{name}", upstream="Ev", keys=[name], agg={f"c{name}": count()}) for name in "sib"]
    float_key = [event("Ev", fields={"f": "f64"}), table("T", upstream="Ev", keys=["f"])]
    yield [register("keys/float", *float_key), push("keys/push", {"f": 1}, "Ev"), get("keys/f", "T", "1")]
    pair = table("P", upstream="Ev", keys=["s", "i"], agg={"cp": count()})
    yield [
        register(
            "keys/event", strict, *by, pair, table("G", upstream="Ev", keys=[], agg={"cg": count(), "sg": total("f")})
        ),
        push("keys/push", good | {"s": "x|y", "i": 3, "f": 1.0}, "Ev"),
        *(
            get(f"keys/{name} {key!r}", f"T{name}", key)
            for name, key in (
                *(
                    ("s", "x|y"),
                    ("s", "x%7Cy"),
                    ("s", ["x|y"]),
                    ("i", "3"),
                    ("i", 3),
                    ("i", [3]),
                ),
                *(("b", "true"), ("b", True), ("s", "cold"), ("i", "x")),
            )
        ),
        *(get(f"keys/pair {key!r}", "P", key) for key in ("x|y|3", "x%7Cy|3", ["x|y", 3], "x", "a|3", "a|3|b")),
        get("keys/global", "G", ""),
        get("keys/global list", "G", []),
        get("features/some", "G", "", features=["sg"]),
        get("features/none", "G", "", features=[]),
        get("features/unknown", "G", "", features=["zz"]),
        get("table/unknown", "Nope", "a"),
        Step("get/no key", "POST", "/get", {"table": "G"}),
        Step("get/no json", "POST", "/get", b"{"),
        Step(
            "batch/errors",
            "POST",
            "/batch_get",
            {"requests": [{"table": "G", "key": ""}, {"table": "Nope", "key": "a"}, {"table": "P", "key": "a"}]},
        ),
        Step(
            "batch/unknown feature",
            "POST",
            "/batch_get",
            {"requests": [{"table": "G", "key": "", "features": ["z"]}]},
        ),
        Step("batch/none", "POST", "/batch_get", {"requests": []}),
        Step("batch/no list", "POST", "/batch_get", {}),
        Step("legacy/feature", "GET", "/get/cg/"),
        Step("legacy/table", "GET", "/get/Ti/3"),
        Step("legacy/cold", "GET", "/get/Ts/cold"),
        Step("legacy/unknown", "GET", "/get/nothing/a"),
    ]
    for op in sorted(CATALOGUE):
        given = {"": params_of(op), "none": params_of(op) | {"where": "(x > 1000000.0)"}}
        if op in WINDOWED | VELOCITY:
            given["window"] = params_of(op) | {"window": "30d"}
        tables = [
            table(f"T{kind}", upstream="Ev", keys=["k"], agg={f"f{kind}": {"op": op, "params": params}})
            for kind, params in given.items()
        ]
        yield [
            register(f"operator/{op}", PLAIN_POINTS, *tables),
            *(push("operators/push", {"k": "a", **row}, "Ev") for row in ROWS if None not in row.values()),
            *(get(f"operator {kind}/{op}", f"T{kind}") for kind in given if op not in OF_TIME or kind == "none"),
        ]
    for text in VALUES:
        column = {"op": "with_columns", "exprs": {"c": text}}
        shown = {"v": {"op": "last", "params": {"field": "c"}}}
        yield [
            register(f"expression/{text}", EVENT, table("T", column, upstream="Ev", keys=["k"], agg=shown)),
            push("expressions/push", DATA, "Ev"),
            get(f"value/{text}", "T"),
        ]
    for wrong in WRONG:
        refused = table("T", {"op": "filter", "expr": wrong}, upstream="Ev", keys=["k"])
        yield [register(f"wrong/{wrong!r}", EVENT, refused)]
    wide = PLAIN["schema"]["fields"] | {"fee": "f64"}
    for place, (op, agg, _) in enumerate(CHAINS):
        yield [
            register(f"chain/{place} {op['op']}", event(fields=wide, optional=["fee"]), table("T", op, agg=agg)),
            push("chains/push", txn("a")),
            push("chains/push", txn("b", 9.0, 2) | {"fee": 3}),
            *(get(f"chain/{place} {op['op']} {user}", "T", user) for user in "ab"),
        ]
    big = derived("Big", where("(amount > 5)"), {"op": "map", "exprs": {"twice": "(amount * 2)"}})
    yield [
        register("derived/nodes", PLAIN, big, table("V", upstream="Big", agg={"s": total("twice")})),
        push("derived/push", txn(amount=9.0)),
        push("derived/push to it", txn(amount=9.0), "Big"),
        get("derived/row", "V"),
    ]
    yield [
        register("sdk/nodes", CAPTURED, BIG, U1),
        push(
            "sdk/push",
            {
                "user_id": "it's",
                "amount": 200,
                "n": 1,
                "ok": True,
                "y": 6,
                "txn_id": "t",
                "lat": 1.0,
                "lon": 2,
                "opt": "x",
            },
        ),
        get("sdk/row", "U1", "it's"),
    ]


OF_TIME = {
    *("first_seen", "last_seen", "age", "time_since", "time_since_last_n", "ewma", "ema", "ewvar", "ew_zscore"),
    *("decayed_sum", "decayed_count", "twa", "rate_of_change", "inter_arrival_stats", "burst_count", "trend"),
    *("trend_residual", "geo_velocity", "reservoir_sample"),
}
"""Operators whose values depend on when a server was asked."""

REASONS: dict[str, str] = {
    "register/* *": "Registrations are incremental",
    "force/type change forced *": "`added`",
    "force/window *": "A window that never ends",
    "force/where *": "What changes a node",
    "force/new feature *": "What changes a node",
    "force/dependent forced *": "Dependents of what is replaced",
    "refused/* 200/400": "What can't work",
    "params/* 200/400": "What can't work",
    "wrong/* 200/400": "What can't work",
    "refused/* 400/400": "Codes of refused nodes",
    "params/* 400/400": "Codes of refused nodes",
    "wrong/* 400/400": "Codes of refused nodes",
    "push/{'i'* 200/400": "Values of events",
    "push/row *": "Values of events",
    "optional/of another type *": "Values of events",
    "optional/row *": "Values of events",
    "keys/* *": "Keys",
    "features/unknown *": "Unknown features",
    "batch/unknown feature *": "Unknown features",
    "get/no * 500/400": "Malformed reads",
    "batch/no list *": "Malformed reads",
    "legacy/* *": "Legacy reads",
    "operator */bloom_member *": "`bloom_member`",
    "operator */event_type_mix *": "`event_type_mix`",
    "expression/* 400/200": "Expressions",
    "sdk/nodes 400/200": "Expressions",
    "chain/* *": "Chains",
    "derived/row *": "Chains",
}
"""By a pattern of a step's name and both statuses, the first words of the line of docs/features.md that says why."""


class Side:
    """One of the servers, in the state of a scenario."""

    def __init__(self, url: str, http: httpx.Client) -> None:
        self._url, self._http, self._base = url, http, 0

    def begin(self, prefix: str) -> None:
        """Begins with nothing registered: in a new namespace, or after a reset."""
        self._prefix = prefix
        if not prefix:
            self._http.post(self._url + "/reset", json={}).raise_for_status()
        self._base = self._http.post(f"{self._url}{prefix}/ping", json={}).json()["registry_version"]

    def ask(self, step: Step) -> Answer:
        """Asks, and returns what is compared."""
        is_raw = isinstance(step.body, bytes) or step.body is None
        given: dict[str, Any] = {"content": step.body} if is_raw else {"json": step.body}
        try:
            answer = self._http.request(step.method, self._url + self._prefix + step.path, **given)
        except httpx.TransportError as error:
            return Answer(0, type(error).__name__)
        try:
            document = answer.json()
        except ValueError:
            document = answer.text
        return Answer(answer.status_code, self._plain(document))

    def _plain(self, document: Any) -> Any:
        """Returns a document without what differs by nature: numbers of the log, earlier versions, texts of errors."""
        if not isinstance(document, dict):
            return document
        found = dict(document)
        if isinstance(found.get("error"), dict):
            found["error"] = {
                name: value for name, value in found["error"].items() if name in ("code", "diff", "method")
            }
        if isinstance(found.get("registry_version"), int):
            found["registry_version"] -= self._base if found["registry_version"] else 0
        for name in ("added", "registered_descriptors"):
            if isinstance(found.get(name), list):
                found[name] = sorted(found[name])
        if "ack_lsn" in found:
            found["ack_lsn"] = type(found["ack_lsn"]).__name__
        if isinstance(found.get("results"), list):
            found["results"] = [self._plain(one) for one in found["results"]]
        return found


def compare(peer: Side, ours: Side) -> Iterator[Difference | None]:
    """Asks both servers everything; yields for each request the difference, or None."""
    for steps in scenarios():
        peer.begin("")
        ours.begin(f"/features/{uuid.uuid4().hex}")
        for step in steps:
            theirs, own = peer.ask(step), ours.ask(step)
            if alike(list(theirs), list(own)) and alike(list(own), list(theirs)):  # both ways: 1 is not 1.0
                yield None
                continue
            seen = f"{step.name} {theirs.status}/{own.status}"
            reason = next((why for pattern, why in REASONS.items() if fnmatch.fnmatchcase(seen, pattern)), None)
            yield Difference(step, theirs, own, reason)
            if step is steps[0] and theirs.status != own.status:
                break  # what follows has nothing to ask


def main() -> int:
    """Asks the servers that the command line names, and prints the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="URL of beava's server, in test mode")
    parser.add_argument("--ours", help="URL of Headrace; without it, it runs in this process on stores in memory")
    asked = parser.parse_args()
    section = DOCS.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    missing = [why for why in set(REASONS.values()) if f"| {why}" not in section]
    with httpx.Client(timeout=20, trust_env=False) as http:
        ours = Server(asked.ours.rstrip("/"), http) if asked.ours else memory.serving({}, 3)
        found = list(compare(Side(asked.peer.rstrip("/"), http), Side(ours.url, ours.http)))
    differences = [one for one in found if one is not None]
    for one in differences:
        print(one.step.name, one.reason or "UNEXPLAINED", sep=": ")
        print(f"    beava    {one.peer.status} {one.peer.document}")
        print(f"    headrace {one.ours.status} {one.ours.document}")
    unexplained = [one for one in differences if one.reason is None]
    unused = set(REASONS.values()) - {one.reason for one in differences}
    print(f"{len(found)} requests, {len(differences)} differences, {len(unexplained)} without a reason")
    for why in sorted(unused):
        print(f"no difference any more: {why}")
    for why in missing:
        print(f"not in {DOCS.name}: {why}")
    return int(bool(unexplained or unused or missing))


if __name__ == "__main__":
    sys.exit(main())
