"""The index manifest: which runs fit, which are retired, and that publication has one winner."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.errors import Damaged
from headrace.index import manifest as manifests
from headrace.index.descriptors import Run
from headrace.index.manifest import IndexManifest, IndexManifestStore, covers, empty, gaps, with_runs, without
from headrace.objects import keys
from headrace.objects.memory import MemoryObjects
from tests.support.examples import examples
from tests.support.shaky import ShakyObjects
from tests.unit.index.samples import LOG, PLAN, run

OLD = "0" * 16


def _with(*runs: Run, plan: str = PLAN) -> IndexManifest:
    manifest = empty(LOG)
    for one in runs:
        manifest = with_runs(manifest, [one], 7, plan=plan)
    return manifest


def _ids(manifest: IndexManifest) -> list[str]:
    return [one.id for one in manifest.runs]


def _retired(manifest: IndexManifest) -> list[str]:
    return [one.run.id for one in manifest.retired]


def test_runs_are_added_in_the_order_of_their_offsets() -> None:
    manifest = with_runs(empty(LOG), [run("b", 10, 20), run("a", 0, 10)], 7, plan=PLAN)
    assert _ids(manifest) == ["a", "b"]
    assert (manifest.generation, manifest.created_ms, manifest.retired) == (1, 7, ())


def test_a_compacted_run_retires_its_inputs() -> None:
    manifest = _with(run("a", 0, 10), run("b", 10, 20), run("c", 20, 30), run("ab", 0, 20, level=1))
    assert _ids(manifest) == ["ab", "c"]
    assert [(one.run.id, one.generation, one.at_ms) for one in manifest.retired] == [("a", 4, 7), ("b", 4, 7)]


def test_a_run_of_the_plan_in_force_retires_older_plans_where_it_covers_them() -> None:
    old = (run("x", 0, 10, plan=OLD), run("y", 10, 30, plan=OLD))
    manifest = _with(*old, run("a", 0, 15))
    assert (_ids(manifest), _retired(manifest)) == (["a", "y"], ["x"])
    manifest = with_runs(manifest, [run("b", 15, 30)], 8, plan=PLAN)
    assert (_ids(manifest), _retired(manifest)) == (["a", "b"], ["x", "y"])


@pytest.mark.parametrize(
    "late",
    [
        run("again", 0, 10),
        run("inside", 5, 6),
        run("across", 5, 15, level=1),
        run("wider", 0, 11),
        run("nothing", 40, 40),
        run("a", 50, 60),
        run("gone", 50, 60),
        run("outdated", 2, 9, plan=OLD),
    ],
    ids=lambda one: one.id,
)
def test_what_does_not_fit_changes_nothing(late: Run) -> None:
    manifest = _with(run("gone", 10, 15), run("a", 0, 10), run("large", 10, 30, level=1))
    assert _retired(manifest) == ["gone"]
    assert with_runs(manifest, [late], 9, plan=PLAN) is manifest


def test_an_input_that_comes_late_is_not_added_beside_what_it_became() -> None:
    manifest = _with(run("a", 0, 10), run("b", 10, 20), run("ab", 0, 20, level=1))
    manifest = without(manifest, ["a", "b"], 9)
    assert with_runs(manifest, [run("a", 0, 10), run("b", 10, 20)], 9, plan=PLAN) is manifest


def test_a_run_that_is_replaced_at_once_was_never_published() -> None:
    manifest = with_runs(empty(LOG), [run("a", 0, 10), run("b", 0, 10, level=1)], 7, plan=PLAN)
    assert (_ids(manifest), _retired(manifest)) == (["b"], [])


def test_a_run_of_an_older_plan_is_read_until_it_is_covered() -> None:
    manifest = _with(run("a", 0, 10), run("x", 5, 30, plan=OLD))
    assert _ids(manifest) == ["a", "x"]
    assert manifest.of_plan(OLD) == (run("x", 5, 30, plan=OLD),)


def test_forgotten_runs_are_retired_no_longer() -> None:
    manifest = _with(run("a", 0, 10), run("b", 0, 10, level=1))
    assert without(manifest, ["b", "unknown"], 9) is manifest
    after = without(manifest, ["a"], 9)
    assert (after.generation, after.retired, after.runs) == (3, (), manifest.runs)


runs = st.builds(
    lambda id_, first, count, level, plan: run(f"r{id_}", first, first + count, level=level, plan=plan),
    st.integers(0, 30),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 3),
    st.sampled_from([PLAN, OLD, "1" * 16]),
)


@examples(300)
@given(steps=st.lists(st.tuples(st.lists(runs, max_size=3), st.sampled_from([PLAN, OLD])), max_size=12))
def test_whatever_is_published_keeps_the_rules_and_loses_no_coverage(steps: list[Any]) -> None:
    manifest = empty(LOG)
    seen: dict[str, Run] = {}
    for new, plan in steps:
        before = manifest
        manifest = with_runs(manifest, new, 7, plan=plan)
        seen |= {one.id: one for one in manifest.runs}
        manifests.check(manifest, "k")
        assert manifests.decode(manifests.encode(manifest), "k") == manifest
        assert manifest is before or manifest.generation == before.generation + 1
        for one in before.runs:  # a record stays covered by its plan, or is now by the plan in force
            same = [kept for kept in manifest.runs if kept.plan == one.plan]
            assert covers(same, one) or covers(manifest.of_plan(plan), one)
        left = {one.id for one in before.runs} - set(_ids(manifest))
        assert left <= set(_retired(manifest))
        assert set(_ids(manifest)).isdisjoint(_retired(manifest))


@given(
    found=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=6),
    start=st.integers(0, 20),
    n=st.integers(0, 20),
)
def test_gaps_are_what_no_run_covers(found: list[tuple[int, int]], start: int, n: int) -> None:
    covered = {offset for first, count in found for offset in range(first, first + count)}
    given_ = [run(f"{number}", first, first + count) for number, (first, count) in enumerate(found)]
    holes = gaps(given_, start, start + n)
    assert [offset for first, end in holes for offset in range(first, end)] == [
        offset for offset in range(start, start + n) if offset not in covered
    ]
    assert all(first < end for first, end in holes)


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 0},
        {"runs": (run("a", 0, 10), run("b", 9, 20))},
        {"runs": (run("a", 10, 20), run("b", 0, 10))},
        {"runs": (run("a", 0, 10), run("a", 10, 20))},
        {"runs": (run("a", 5, 5),)},
        {"runs": (run("a", -1, 5),)},
        {"runs": (run("a", 0, 9),), "retired": (manifests.Retired(run("a", 0, 9), 1, 1),)},
    ],
)
def test_a_generation_that_breaks_a_rule_is_damaged(wrong: dict[str, Any]) -> None:
    data = manifests.encode(replace(_with(), generation=1, **wrong))
    with pytest.raises(Damaged, match="object=k"):
        manifests.decode(data, "k")


def test_a_cut_or_altered_generation_is_damaged() -> None:
    whole = _with(run("a", 0, 10))
    data = manifests.encode(whole)
    for at in range(len(data)):
        with pytest.raises(Damaged):
            manifests.decode(data[:at], "k")
        with contextlib.suppress(Damaged):  # a zstd frame has a bit that means nothing
            assert manifests.decode(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :], "k") == whole


def test_the_newest_generation_is_found_from_anywhere() -> None:
    objects = ShakyObjects()
    store = IndexManifestStore(objects)
    assert store.newest(LOG) == empty(LOG)
    made = [_with(*(run(f"{n}", n, n + 1) for n in range(count))) for count in range(1, 13)]
    for one in made:
        assert store.publish(one)
    for known, at_least in ((None, 0), (None, 5), (made[3], 0), (made[3], 9), (made[-1], 3), (empty(LOG), 0)):
        assert store.newest(LOG, known, at_least) == made[-1]
    objects.gets.clear()
    store.newest(LOG, made[-1])
    assert objects.gets == [keys.index_manifest(LOG, 13)]
    objects.gets.clear()
    store.newest(LOG)
    assert objects.gets == [keys.index_manifest(LOG, number) for number in (1, 12, 13)]


def test_a_generation_that_should_exist_and_does_not_leaves_what_is_left() -> None:
    store = IndexManifestStore(MemoryObjects())
    assert store.newest(LOG, None, 3) == empty(LOG)
    first = _with(run("a", 0, 1))
    store.publish(first)
    assert store.newest(LOG, None, 3) == first
    assert store.newest(LOG, first, 3) == first


def test_a_generation_in_the_wrong_place_is_damage() -> None:
    store = IndexManifestStore(objects := MemoryObjects())
    objects.put(keys.index_manifest(LOG, 2), manifests.encode(_with(run("a", 0, 1))))
    with pytest.raises(Damaged, match="wrong place"):
        store.load(LOG, 2)


def test_a_lost_answer_is_found_again() -> None:
    objects = ShakyObjects()
    objects.creates = ["lost after"]
    mine = _with(run("a", 0, 10))
    assert IndexManifestStore(objects).publish(mine)
    assert IndexManifestStore(objects).load(LOG, 1) == mine


def test_a_lost_answer_to_the_loser_is_a_loss() -> None:
    objects = ShakyObjects()
    IndexManifestStore(objects).publish(_with(run("a", 0, 10)))
    objects.creates = ["lost after"]
    assert not IndexManifestStore(objects).publish(_with(run("b", 0, 10)))


def test_what_breaks_a_rule_is_not_published() -> None:
    store = IndexManifestStore(objects := MemoryObjects())
    for wrong in (empty(LOG), replace(_with(run("a", 0, 9)), runs=(run("a", 3, 3),))):
        with pytest.raises(Damaged):
            store.publish(wrong)
    assert list(objects.list("")) == []
