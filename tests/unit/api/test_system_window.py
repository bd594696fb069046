"""What was measured in an interval, and the records that it becomes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from functions.api.streams.system.recorder import MAX_STREAMS, Recorder, Series, Summary, Window
from headrace.objects import keys
from headrace.objects.observed import Request
from headrace.streams.profiles.metrics import Metrics
from headrace.streams.values import SYSTEM_STREAM
from tests.support.clocks import ManualClock

BYTES = Series("tieredstore.append.bytes", "bytes", "orders")
VALUES = st.lists(st.integers(0, 2**70), max_size=30)


def summary_of(values: list[int]) -> Summary:
    summary = Summary()
    for value in values:
        summary.add(value)
    return summary


@given(VALUES)
def test_a_summary_says_how_many_how_much_and_of_which_size(values: list[int]) -> None:
    summary = summary_of(values)
    assert (summary.count, summary.sum) == (len(values), sum(values))
    assert (summary.min, summary.max) == (min(values, default=0), max(values, default=0))
    assert sum(summary.buckets.values()) == len(values)
    for bucket, count in summary.buckets.items():
        assert count == sum(1 for value in values if bucket <= max(1, value) < 2 * bucket)


@given(VALUES, VALUES)
def test_merging_is_measuring_together(one: list[int], other: list[int]) -> None:
    merged = summary_of(one)
    merged.merge(summary_of(other))
    assert merged == summary_of([*one, *other])


def test_a_record_is_what_the_metrics_profile_asks_for() -> None:
    window = Window(1000)
    for value in (128, 512, 600, 1024):
        window.add(BYTES._replace(tags=(("env", "prod"),)), value, 1500)
    (record,) = window.records(now_ms=11_000, interval_ms=10_000, instance="7-ab")
    stored, key = Metrics(system=True).normalize(record, 0)
    assert key is None, "its keys would be indexed"
    assert stored["seriesKey"] == "summary|delta|tieredstore.append.bytes|bytes|orders|7-ab|env=prod"
    assert (stored["windowStart"], stored["windowEnd"], stored["intervalMs"]) == (1000, 11_000, 10_000)
    assert (stored["count"], stored["sum"], stored["min"], stored["max"], stored["avg"]) == (4, 2264, 128, 1024, 566)
    assert stored["buckets"] == stored["summary"]["histogram"] == {"128": 1, "512": 2, "1024": 1}
    assert (stored["p50"], stored["p95"]) == (512, 1024)


def test_a_process_that_stood_still_has_not_measured_meanwhile() -> None:
    def end(now_ms: int, last_ms: int) -> int:
        window = Window(1000)
        window.add(BYTES, 1, last_ms)
        (record,) = window.records(now_ms=now_ms, interval_ms=10_000, instance="i")
        found: int = record["windowEnd"]
        return found

    assert end(now_ms=3_600_000, last_ms=2000) == 11_000
    assert end(now_ms=3_600_000, last_ms=30_000) == 30_000
    assert end(now_ms=4000, last_ms=2000) == 4000  # a server that ends before the interval does
    assert end(now_ms=500, last_ms=600) == 1000  # the clock was set back


def test_only_so_many_streams_are_told_apart() -> None:
    window = Window(0)
    for number in range(MAX_STREAMS + 50):
        for metric in ("a", "b"):
            window.add(Series(metric, "count", f"s{number}"), 1, 0)
    found = window.records(now_ms=1, interval_ms=1, instance="i")
    assert len(found) == 2 * (MAX_STREAMS + 1)
    assert {record["metric"]: record["sum"] for record in found if record["stream"] is None} == {"a": 50, "b": 50}


def test_what_is_put_back_goes_with_the_next_window() -> None:
    clock = ManualClock(1000)
    recorder = Recorder(clock)
    begun: list[int] = []
    recorder.on_first = lambda: begun.append(clock.now_ms())
    recorder.count("a", "count", 1, "s")
    clock.advance(1)
    taken = recorder.take()
    assert taken is not None
    assert recorder.take() is None
    recorder.count("a", "count", 2, "s")
    recorder.count("b", "count", 5, "s")
    recorder.put_back(taken)
    again = recorder.take()
    assert again is not None
    found = {record["metric"]: record for record in again.records(now_ms=9000, interval_ms=0, instance="i")}
    assert (found["a"]["count"], found["a"]["sum"], found["b"]["sum"]) == (2, 3, 5)
    assert found["a"]["windowStart"] == 1000
    recorder.put_back(again)
    assert begun == [1000, 2000, 2000]  # each time there was something to do where there was nothing


def test_nothing_of_the_metrics_stream_is_measured() -> None:
    recorder = Recorder(ManualClock())
    recorder.own_log("own")
    recorder.count("a", "count", 1, SYSTEM_STREAM)
    recorder.observe(Request("get", (keys.segment("own", 1, "n"),), "ok", 1e-9))
    assert not recorder.pending
    recorder.observe(Request("get", (keys.segment("other", 1, "n"),), "ok", 1e-9))
    assert recorder.pending
    silent = Recorder(ManualClock(), enabled=False)
    silent.count("a", "count", 1)
    assert not silent.pending
