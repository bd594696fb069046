"""Sketches stay within their errors and their sizes, whatever comes and in whichever order."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.features.pipeline import sketches
from headrace.features.pipeline.features import FeatureSet, FeatureSpec, State, check_operator
from headrace.features.pipeline.ops import sketch
from tests.support.examples import examples

TYPES = {"x": "f64", "s": "str"}


def table(op: str, **params: Any) -> FeatureSet:
    return FeatureSet([FeatureSpec("f", "f", op, check_operator(op, params, TYPES)[1])])


def fold(asked: FeatureSet, field: str, values: list[Any], step_ms: int = 1) -> State:
    state = asked.new()
    for offset, value in enumerate(values):
        asked.fold(state, {field: value}, offset * step_ms, 0, offset)
    return state


def mixed(number: int) -> int:
    """Returns a number that looks random, another one for each argument."""
    return number * 2_654_435_761 % 2**32


@pytest.mark.parametrize("distinct", [1_024, 1_025, 5_000, 15_000])
def test_n_unique_is_exact_up_to_1024_and_within_four_standard_errors_beyond(distinct: int) -> None:
    asked = table("n_unique", field="x")
    state = fold(asked, "x", [float(number) for number in range(distinct)] + [0.0, 1.0])
    found = asked.read(state, 10**9)["f"]
    assert abs(found - distinct) <= (4 * 0.0163 * distinct if distinct > 1_024 else 0)
    assert len(asked.encode(state)) <= asked.max_bytes


def test_n_unique_of_a_window_is_exact_again_when_the_sketches_are_dead() -> None:
    asked = table("n_unique", field="x", window="6400ms")
    state = fold(asked, "x", [float(number) for number in range(3_000)], step_ms=2)
    assert asked.read(state, 5_998)["f"] == pytest.approx(3_000, rel=4 * 0.0163)
    assert asked.read(state, 5_998 + 3_200)["f"] == pytest.approx(1_600, rel=0.05)
    for number in range(5):
        asked.fold(state, {"x": float(number)}, 20_000, 0, number)
    assert asked.read(state, 20_000)["f"] == 5
    assert state.cells[0][1] == {}


@given(st.lists(st.integers().map(sketches.hash_value), max_size=60), st.integers(0, 60))
def test_the_union_of_two_hlls_is_the_hll_of_all(hashes: list[int], cut: int) -> None:
    def sketch(some: list[int]) -> Any:
        built: Any = {}
        for hashed in some:
            built = sketches.add_to_registers(built, hashed)
        return built

    whole = sketches.estimate_distinct([sketch(hashes)])
    assert sketches.estimate_distinct([sketch(hashes[:cut]), sketch(hashes[cut:])]) == whole
    assert abs(whole - len(set(hashes))) <= 2
    dense = bytearray(sketches.REGISTERS)
    for hashed in hashes:
        dense = sketches.add_to_registers(dense, hashed)
    assert sketches.estimate_distinct([dense, sketch(hashes[:cut])]) == whole


VALUES = st.floats(1e-6, 1e9) | st.floats(-1e9, -1e-6) | st.just(0.0)


@examples(100)
@given(st.lists(VALUES, min_size=1, max_size=80), st.floats(0.001, 0.999))
def test_a_quantile_beyond_256_values_is_within_1_percent_of_a_value_of_its_rank(
    values: list[float], q: float
) -> None:
    asked = table("quantile", field="x", q=q)
    values = values * (256 // len(values) + 1)
    state = asked.copy(fold(asked, "x", values))
    assert isinstance(state.cells[0][0][-1], dict)
    rank = sorted(values)[int(q * (len(values) - 1))]
    assert asked.read(state, 10**9)["f"] == pytest.approx(rank, rel=sketches.ALPHA * 1.0001)


def test_a_quantile_of_everything_a_float_can_be_keeps_its_bounds() -> None:
    asked = table("quantile", field="x", window="6400ms")
    state = fold(asked, "x", [math.copysign(2.0 ** (mixed(n) % 2000 - 1000), mixed(n) % 3 - 1) for n in range(4_000)])
    assert all(len(bins) <= 512 for bins in state.cells[0][0])
    assert max(state.cells[0][1]) == 0
    lone = fold(
        asked, "x", [math.copysign(2.0 ** (mixed(n) % 2000 - 1000), mixed(n) % 3 - 1) for n in range(4_000)], 0
    )
    assert len(lone.cells[0][0][0]) <= 512 and lone.cells[0][1][0] > 0
    assert math.isfinite(asked.read(lone, 0)["f"])
    assert len(asked.encode(lone)) <= asked.max_bytes


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 8), st.integers(0, 4))
def test_a_bin_contains_its_values_and_coarser_bins_contain_it(value: float, level: int, more: int) -> None:
    key = sketches.bin_of(value, level)
    assert sketches.coarsen({key: 3}, more) == {sketches.bin_of(value, level + more): 3}
    if level == 0 and 1e-300 < abs(value) < 1e300:
        assert sketches.value_of(key, 0) == pytest.approx(value, rel=sketches.ALPHA * 1.0001)
    assert math.isfinite(sketches.value_of(key, level))


def test_buckets_of_different_levels_are_merged_on_the_coarser() -> None:
    asked, low = (table("quantile", field="x", window="6400ms", q=q) for q in (0.5, 0.02))
    state = fold(asked, "x", [1.02 ** (number % 1_600) for number in range(3_200)], step_ms=0)
    for number in range(20_000):
        asked.fold(state, {"x": 1e6 + number % 10}, 100, 0, number)
    assert state.cells[0][1] == [2, 0]
    assert asked.read(state, 100)["f"] == pytest.approx(1e6, rel=0.04)  # four bins are one: 1.0202 ** 4 / 2
    assert low.read(state, 100)["f"] == pytest.approx(1.02**231, rel=0.04)  # rank 463 of 23,200; two have each value


def test_space_saving_evicts_the_least_of_which_it_is_the_eldest() -> None:
    tally = sketches.SpaceSaving({"a": [2, 0, 2], "b": [1, 0, 1], "c": [3, 0, 3], "d": [1, 0, 1]})
    assert [tally.evict()[0] for _ in range(4)] == ["b", "d", "a", "c"]


def test_space_saving_looks_again_for_the_least_after_a_bucket_died() -> None:
    tally = sketches.SpaceSaving({"a": [6, 0, 5, 60, 1], "b": [2, 60, 2], "c": [2, 60, 2], "d": [3, 60, 3]})
    assert tally.evict()[0] == "b"
    assert tally.prune(1) == []
    assert tally.evict() == ("a", [1, 60, 1])


@examples(300)
@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from([0, 0, 0, 1, 1, 30, 65])), max_size=50))
def test_top_k_evicts_the_same_whether_it_was_stored_or_not(events: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch, "EXACT_DISTINCT", 4)
        asked = table("top_k", field="x", window="64ms")
        kept, stored, stamp = asked.new(), asked.new(), 0
        for offset, (value, gap) in enumerate(events):
            stamp += gap
            for state in (kept, stored):
                asked.fold(state, {"x": value}, stamp, 0, offset)
            stored = asked.copy(stored)
            assert asked.encode(kept) == asked.encode(stored)


@pytest.mark.parametrize("window", [None, "6400ms"])
def test_top_k_beyond_1024_values_is_off_by_at_most_a_1024th_of_the_events(window: str | None) -> None:
    asked = table("top_k", field="s", k=4, window=window)
    # Each of four keys is an eighth of 6,000 events; the others differ all.
    values = [f"often-{number % 4}" if number % 2 else f"once-{number}" for number in range(6_000)]
    state = fold(asked, "s", values)
    top = asked.read(state, 5_999)["f"]
    assert [entry["value"] for entry in top] == [f"often-{number}" for number in (1, 3)] + [
        entry["value"] for entry in top[2:]
    ]
    assert all(1_500 <= entry["count"] <= 1_500 + 6_000 // 1_024 for entry in top[:2])
    assert all(entry["count"] <= 6_000 // 1_024 + 1 for entry in top[2:])
    assert len(state.cells[0][0]) == 1_024
    assert len(asked.encode(state)) <= asked.max_bytes


def test_top_k_of_long_strings_stays_within_its_budget() -> None:
    asked = table("top_k", field="s", window="1h")
    state = fold(asked, "s", [f"{number:0>1024}" for number in range(1_000)] + ["x"] * 50)
    assert asked.max_bytes < 1_000_000
    assert len(asked.encode(state)) < 300_000
    assert asked.read(state, 2_000)["f"][0]["value"] == "x"


def test_entropy_drops_newcomers_beyond_1024_values() -> None:
    asked = table("entropy", field="s")
    state = fold(asked, "s", [str(number) for number in range(2_000)])
    assert asked.read(state, 10**9)["f"] == pytest.approx(10.0)


def test_a_bloom_filter_knows_what_was_there_and_is_seldom_wrong_about_the_rest() -> None:
    asked = table("bloom_member", field="s")
    state = fold(asked, "s", [f"known-{number}" for number in range(1_024)])
    assert 1_200 < len(asked.encode(state)) < 1_300
    data, wrong = asked.encode(state), 0
    for number in range(1_024):
        fresh = asked.decode(data)
        asked.fold(fresh, {"s": f"known-{number}"}, 10**6, 0, 0)
        assert asked.read(fresh, 10**6)["f"] is True
        fresh = asked.decode(data)
        asked.fold(fresh, {"s": f"unknown-{number}"}, 10**6, 0, 0)
        wrong += asked.read(fresh, 10**6)["f"]
    assert wrong < 1_024 * 0.025


def test_a_reservoir_is_uniform_and_the_same_for_everybody() -> None:
    asked = table("reservoir_sample", field="x", samples=100)
    state = fold(asked, "x", [float(number) for number in range(5_000)])
    sample = asked.read(state, 10**9)["f"]
    assert len(sample) == len(set(sample)) == 100
    assert 2_000 < sum(sample) / 100 < 3_000  # a standard error of the mean is 144
    assert sample == asked.read(asked.copy(state), 10**9)["f"]


def test_hashes_tell_types_apart_and_stay_what_they_are() -> None:
    values = ["", "1", "b1", "n1", "f1.5", 1, 1.5, True, False, 0, -1, 2**63 - 1, 1e300]
    assert len({sketches.hash_value(value) for value in values}) == len(values)
    assert sketches.hash_value(1) == sketches.hash_value(1.0)
    assert sketches.hash_value(0.0) == sketches.hash_value(-0.0)
    # Stored states hold hashes: another encoding would forget every value.
    assert [sketches.hash_value(value) for value in ("a", 1, 1.5, True)] == PINNED


PINNED = [5931315628352895258, 5894824055016522919, 6120571943647683024, 1897922507333258338]
