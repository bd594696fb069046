"""Windows and idle rows, in real time: what was pushed goes by itself."""

from __future__ import annotations

import time
from typing import Any

from tests.conformance.features.client import Namespace, alike, answered, txn
from tests.conformance.features.test_operators import EVENT, VELOCITY, WINDOWED, params_of
from tests.conformance.features.test_read import as_of
from tests.unit.features.ops.test_golden_values import NOTHING
from tests.unit.features.pipeline.documents import count, event, table, total

WINDOW_MS = 1500
LATER_S = 1.6  # the window has passed


def windowed(window: Any = f"{WINDOW_MS}ms") -> dict[str, Any]:
    """Returns an aggregation for each operator that takes a window."""
    ops = sorted(WINDOWED | VELOCITY)
    return {op: {"op": op, "params": params_of(op) | ({"window": window} if window else {})} for op in ops}


def test_a_window_forgets_and_a_lifetime_does_not(space: Namespace) -> None:
    more = {"life": count(), "for_ever": count(window="forever"), "hour": total("x", window="1h")}
    more["at"] = {"op": "first_seen"}
    space.has(
        EVENT,
        table("T", upstream="Ev", keys=["k"], agg=windowed() | more),
        table("L", upstream="Ev", keys=["k"], agg=windowed(None)),
    )
    for key in "abcde":  # a machine may be too busy to push and read within the window
        data = [{"k": key, "x": x, "i": 1, "s": "a"} for x in (1.0, 2.0, 2.0, 7.0)]
        answered(space.post("/push/Ev/batch", data[:3]))
        answered(space.push(data[3], "Ev"))
        answer = space.get_all(("T", key), ("L", key))
        first, life = answered(answer)["results"]
        if as_of(answer)[0] - first["at"] < WINDOW_MS * 63 // 64:
            break
    assert alike({op: first[op] for op in life}, life), "no difference while everything is inside"
    assert (first["count"], first["sum"], first["n_unique"], first["value_change_count"]) == (4, 12.0, 3, 2)
    assert first["top_k"] == [{"value": 2.0, "count": 2}, {"value": 1.0, "count": 1}]
    time.sleep(LATER_S)  # the window
    later, still = answered(space.get_all(("T", key), ("L", key)))["results"]
    ops = WINDOWED | VELOCITY
    assert {op: later[op] for op in ops} == {op: NOTHING.get(op, 0) for op in ops}
    assert (later["life"], later["for_ever"], later["hour"]) == (4, 4, 12.0)
    assert alike(still, life)
    answered(space.push(data[0], "Ev"))
    # what a change and an outlier are compared with is kept, though what was counted is not
    assert space.row("T", key)["value_change_count"] in (0, 1)
    assert space.row("L", key)["value_change_count"] == 3


def test_an_event_counts_for_between_63_of_64_parts_of_a_window_and_the_window(space: Namespace) -> None:
    agg = {"c": count(window="640ms"), "at": {"op": "last_seen"}, "young": {"op": "first_seen_in_window"}}
    agg["young"]["params"] = {"window": "640ms"}
    space.has(event(), table(agg=agg)).filled(txn())
    seen = set()
    while True:
        answer = space.get()
        (now, _), row = as_of(answer), answered(answer)
        bucket = row["at"] // 10 * 10
        assert row["c"] == int(now - bucket < 640), (now, row)
        assert row["young"] is (now - row["at"] < 640), (now, row)
        seen.add(row["c"])
        if not row["c"] and not row["young"]:
            break
    assert 0 in seen


def test_durations_have_units(space: Namespace) -> None:
    agg = {f"c{unit}": count(window=f"9000{unit}") for unit in ("ms", "s", "m", "h", "d")}
    space.has(event(), table(agg=agg)).filled(txn())
    assert space.row() == dict.fromkeys(agg, 1)


def test_decay_is_as_of_the_newest_event(space: Namespace) -> None:
    agg = {op: {"op": op, "params": {"field": "amount", "half_life": "100ms"}} for op in ("decayed_sum", "ewma")}
    space.has(event(), table(agg=agg)).filled(txn(amount=8))
    first = space.row()
    time.sleep(0.15)  # more than a half-life
    assert space.row() == first == {"decayed_sum": 8.0, "ewma": 8.0}
    space.filled(txn(amount=0))
    row = space.row()
    assert row["decayed_sum"] < 3.5 and row["ewma"] < 3.5


def test_an_idle_row_of_windows_goes_and_one_of_lifetimes_stays(space: Namespace) -> None:
    space.has(
        event(cold_after_ms=300),
        table(agg={"c": count(window="200ms")}),
        table("L", agg={"c": count(), "at": {"op": "last_seen"}}),
    )
    for events in (1, 2):
        space.filled(txn())
        while True:
            answer = space.get_all(("U", "a"), ("L", "a"))
            row, kept = answered(answer)["results"]
            assert kept["c"] == events
            if as_of(answer)[0] - kept["at"] >= 200 + 300:  # the window, then the idle time
                break
            assert row in ({"c": 1}, {"c": 0})
        assert row == {}
