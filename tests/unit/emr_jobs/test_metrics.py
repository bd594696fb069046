"""The family of a metrics stream: its intervals, typed, by metric and window."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from emr_jobs import intervals
from headrace.definition import Definition
from headrace.json import registry
from headrace.objects.memory import MemoryObjects
from headrace.streams.profiles.metrics import Metrics
from tests.support import index_runs
from tests.support.examples import examples
from tests.unit.emr_jobs import samples

PROFILE = Metrics()
DEFINITION = Definition(registry.install(PROFILE.registry(), name="s", next_offset=0), PROFILE)

_intervals = st.fixed_dictionaries(
    {
        "metric": st.sampled_from(["cpu", "cpu\0", "cpu\0x", "disk", "é"]),
        "unit": st.just("s"),
        "windowStart": st.sampled_from([0, 1, 255, 256, 10_000, -5, 2**62]),
        "windowEnd": st.just(2**62 + 1),
        "count": st.integers(0, 3),
        "sum": st.sampled_from([0, 1.5, 2**70]),
    },
    optional={"tags": st.just({"b": "2", "a": 1}), "buckets": st.just({"1": 2}), "instance": st.just("i")},
)


@examples(30)
@given(st.lists(_intervals, min_size=1, max_size=12), st.integers(1, 6))
def test_intervals_stand_by_metric_and_window(given_: list[dict[str, Any]], cut: int) -> None:
    objects = MemoryObjects()
    documents = [PROFILE.normalize(one, 0) for one in given_]
    found = samples.records(documents)
    key = samples.put_definition(objects, DEFINITION)
    segments = samples.put_segments(objects, found, [cut])
    runs = index_runs.make(
        objects,
        [samples.task("build", f"r{at}", DEFINITION, key, segments=[one]) for at, one in enumerate(segments)],
    )
    (merged,) = index_runs.make(objects, [samples.task("compact", "all", DEFINITION, key, inputs=runs)])
    (whole,) = index_runs.make(objects, [samples.task("build", "whole", DEFINITION, key, segments=segments)])
    assert samples.rows_of(objects, merged)["mblk"] == samples.rows_of(objects, whole)["mblk"]
    shown = [
        (
            row["metric"],
            row["window_start"],
            row["offset"],
            row["count"],
            row["sum"],
            row["attributes"],
            row["buckets"],
        )
        for row in samples.rows_of(objects, whole)["mblk"]
    ]
    wanted = [
        (
            *(document["metric"].encode(), document["windowStart"], record.offset),
            *(float(document["count"]), float(document["sum"])),
            *(list(document["attributes"].items()), list(document["buckets"].items())),
        )
        for record, (document, _) in zip(found, documents, strict=True)
    ]
    assert [(one[0].encode(), *one[1:]) for one in shown] == sorted(wanted)


def test_what_is_no_interval_has_no_row() -> None:
    assert intervals.row({"metric": 1}, 0) is None
    assert intervals.row([1], 0) is None


def test_what_a_type_cannot_hold_is_null() -> None:
    row = intervals.row({"metric": "m", "windowStart": 2**63, "count": 10**400, "sum": True, "unit": 1}, 7)
    assert row is not None
    assert [row[name] for name in ("window_start", "count", "sum", "unit", "attributes")] == [None] * 5
    assert intervals.sort_key(row) == b"m\0\0"
