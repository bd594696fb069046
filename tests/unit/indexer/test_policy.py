"""What is due, what is merged, when a log is looked at again: pure."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from functions.indexer import policy
from functions.indexer.policy import IDLE_RETIRE_AGES, IndexLimits, Picture
from headrace.index import manifest as manifests
from headrace.index.descriptors import Run
from headrace.index.job import Task
from headrace.index.manifest import IndexManifest, with_runs
from headrace.manifest import merging
from headrace.segment.descriptor import PageIndex, Segment
from headrace.tables.jobs import Waiting

LIMITS = IndexLimits(age_ms=60_000, segments=4, fanout=3, jobs=1, retire_age_ms=300_000)
NOW = 1_700_000_000_000
LOG = "0" * 32


def run_of(number: int, first: int, end: int, level: int = 0, plan: str = "p", size: int = 100) -> Run:
    return Run(f"{number}", level, plan, first, end, 0, 0, None, None, {"lex": size}, f"d{number}", "", 0, NOW)


def index_of(*runs: Run) -> IndexManifest:
    return replace(manifests.empty(LOG), generation=1, runs=tuple(sorted(runs, key=lambda run: run.first_offset)))


def segment(number: int) -> Segment:
    return Segment(number, f"s{number}", 10 * number, 10, 0, 0, 100, 100, "", "", PageIndex(4, (), (), ()))


def picture(index: IndexManifest, segments: int, plan: str = "p", base: int = 0) -> Picture:
    end = base + 10 * segments
    ranges = policy.unindexed_ranges(index, plan, base, end)
    found = [segment(number) for number in range(base // 10, base // 10 + segments)]
    missing = [
        one for one in found if any(one.first_offset < end and start < one.end_offset for start, end in ranges)
    ]
    newest = tuple(missing[-policy.enough(LIMITS) :])
    return Picture(LOG, "text/plain", plan, "", base, end, NOW, index, newest)


def due(picture: Picture, waited_ms: int = 0) -> list[Task]:
    numbers = itertools.count()
    return policy.tasks(picture, NOW - waited_ms, NOW, LIMITS, lambda: f"new{next(numbers)}")


def spans(tasks: list[Task], work: str = "build") -> list[tuple[int, int]]:
    return [(task.first_offset, task.end_offset) for task in tasks if task.work == work]


def test_enough_segments_are_due_at_once_and_fewer_when_they_are_old() -> None:
    assert spans(due(picture(index_of(), 3))) == []
    assert spans(due(picture(index_of(), 4))) == [(0, 40)]
    assert spans(due(picture(index_of(), 3), waited_ms=60_000)) == [(0, 30)]
    assert policy.next_look_ms(picture(index_of(), 3), NOW - 10_000, NOW, LIMITS) == NOW + 50_000
    assert policy.next_look_ms(picture(index_of(), 4), NOW, NOW, LIMITS) == NOW
    assert policy.next_look_ms(picture(index_of(run_of(0, 0, 30)), 3), 0, NOW, LIMITS) is None


def test_a_run_has_bounded_segments_and_the_newest_are_built_first() -> None:
    assert spans(due(picture(index_of(), 10))) == [(60, 100), (20, 60), (0, 20)]
    many = due(picture(index_of(), 100))
    assert spans(many)[0] == (960, 1000)
    assert len(many) == policy.MAX_BUILDS


def test_gaps_are_filled_between_runs_and_runs_of_another_plan_do_not_count() -> None:
    index = index_of(run_of(0, 0, 20), run_of(1, 30, 40), run_of(2, 40, 60, plan="old"))
    assert spans(due(picture(index, 6), waited_ms=60_000)) == [(40, 60), (20, 30)]


def test_a_fork_has_no_work_below_its_base() -> None:
    assert spans(due(picture(index_of(), 4, base=50))) == [(50, 90)]


def test_neighbours_of_one_level_are_merged_by_tiers() -> None:
    index = index_of(run_of(9, 0, 10, level=1), *(run_of(n, 10 * n, 10 * n + 10) for n in range(1, 5)))
    (task,) = due(picture(index, 5))
    assert (task.work, task.level, task.first_offset, task.end_offset) == ("compact", 1, 10, 40)
    assert [run.id for run in task.inputs] == ["1", "2", "3"]


def test_runs_are_not_merged_across_a_gap_or_a_level_or_a_plan() -> None:
    apart = index_of(run_of(0, 0, 10), run_of(1, 10, 20), run_of(2, 30, 40))
    assert spans(due(picture(apart, 4)), "compact") == []
    mixed = index_of(run_of(0, 0, 10, level=1), run_of(1, 10, 20), run_of(2, 20, 30))
    assert spans(due(picture(mixed, 3)), "compact") == []
    stale = index_of(*(run_of(n, 10 * n, 10 * n + 10, plan="old") for n in range(3)))
    assert spans(due(picture(stale, 3)), "compact") == []


def test_too_many_runs_are_merged_where_it_costs_least() -> None:
    # no three neighbours of one level, and 18 runs
    runs = [run_of(n, 10 * n, 10 * n + 10, level=n % 2, size=1 if n in (6, 7, 8) else 100) for n in range(18)]
    (task,) = due(picture(index_of(*runs), 18))
    assert (task.first_offset, task.end_offset, task.level) == (60, 90, 2)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=40), st.integers(0, 200))
def test_working_off_what_is_due_indexes_everything_in_a_bounded_number_of_runs(sizes: list[int], skip: int) -> None:
    """Published in waves of any size, each followed by its jobs; the law of the tiers is checked at the end."""
    index, segments = index_of(), 0
    numbers = itertools.count()
    for wave in [*sizes, 0]:
        segments += wave
        for _ in range(60):
            found = policy.tasks(picture(index, segments), NOW - 60_000, NOW, LIMITS, lambda: f"r{next(numbers)}")
            if not found:
                break
            made = [
                replace(run_of(0, one.first_offset, one.end_offset, one.level), id=one.run_id, descriptor=one.run_id)
                for one in found
            ]
            after = with_runs(index, made, NOW, plan="p")
            assert after is not index, "what is due can be published"
            index = after
    assert manifests.gaps(index.runs, 0, 10 * segments) == []
    manifests.check(index, "test")
    assert len(index.runs) <= policy.MAX_ACTIVE


def test_retired_runs_go_after_two_generations_and_the_age_or_a_long_time() -> None:
    index = with_runs(index_of(run_of(0, 0, 10), run_of(1, 10, 20)), [run_of(2, 0, 20, level=1)], NOW, plan="p")
    age = LIMITS.retire_age_ms
    assert policy.expired(index, NOW + age, LIMITS) == []
    assert policy.next_look_ms(picture(index, 2), 0, NOW, LIMITS) == NOW + age * IDLE_RETIRE_AGES
    assert [run.id for run in policy.expired(index, NOW + age * IDLE_RETIRE_AGES, LIMITS)] == ["0", "1"]
    later = replace(index, generation=index.generation + 2)
    assert policy.expired(later, NOW + age - 1, LIMITS) == []
    assert [run.id for run in policy.expired(later, NOW + age, LIMITS)] == ["0", "1"]


def test_a_log_that_is_noted_again_keeps_the_earlier_time() -> None:
    row = policy.noted(None, LOG, NOW, NOW + 60_000)
    assert row == Waiting(LOG, NOW + 60_000, since_ms=NOW)
    assert policy.noted(row, LOG, NOW + 5, NOW + 60_005) is None
    sooner = policy.noted(row, LOG, NOW + 5, NOW + 5)
    assert sooner == Waiting(LOG, NOW + 5, since_ms=NOW)


def test_news_of_a_log_that_is_due_writes_its_row_again() -> None:
    due = Waiting(LOG, NOW, since_ms=NOW, version=3)
    assert policy.noted(due, LOG, NOW, NOW) == due, "a planner may be about to drop it"
    assert policy.noted(replace(due, job_id="j"), LOG, NOW, NOW) is None


def test_a_log_in_work_or_in_trouble_is_not_made_due_by_news() -> None:
    working = Waiting(LOG, NOW + 10**6, job_id="j", version=3)
    assert policy.noted(working, LOG, NOW, NOW) == replace(working, since_ms=NOW)
    failed = Waiting(LOG, NOW + 10**6, since_ms=NOW, failures=1, version=3)
    assert policy.noted(failed, LOG, NOW, NOW) is None


def test_a_log_that_fails_waits_ever_longer_and_runs_alone() -> None:
    row, waits = Waiting(LOG, NOW, job_id="j"), []
    for _ in range(30):
        row = policy.failed(row, NOW, "why", damaged=False)
        waits.append(row.due_ms - NOW)
    assert waits[:3] == [30_000, 60_000, 120_000]
    assert waits[-1] == 6 * 3600 * 1000
    assert (row.failures, row.job_id, row.reason) == (30, "", "why")
    assert policy.failed(Waiting(LOG, NOW), NOW, "why", damaged=True).due_ms - NOW > 10 * waits[0]
    healthy = [Waiting("a", NOW), Waiting("b", NOW)]
    assert policy.together([*healthy, row]) == healthy
    assert policy.together([row, *healthy]) == [row]


def test_segments_with_blanked_records_are_not_merged_before_the_scrubs_of_their_day() -> None:
    limits = LIMITS._replace(merge=merging.MergeLimits(2, 10_000, 10_000, 0))
    day = next(day for day in range(20_000, 20_007) if merging.is_day(LOG, day * merging.DAY_MS))
    plain = tuple(segment(number) for number in range(2))
    for blanked, days, is_merged in ((0, 0, True), (1, -2, True), (1, -1, False), (1, 0, False), (1, 1, True)):
        page = (replace(plain[0], blanked=blanked), plain[1])
        found = Picture(LOG, "text/plain", "", "", 20, 20, NOW, index_of(), (), open_page=page)
        now_ms = (day + days) * merging.DAY_MS + 5
        merges = spans(policy.tasks(found, now_ms, now_ms, limits, lambda: "new"), "merge")
        assert merges == ([(0, 20)] if is_merged else []), (blanked, days)
        look_ms = policy.next_look_ms(found, now_ms, now_ms, limits)
        assert look_ms == (now_ms if is_merged else (day + days + 1) * merging.DAY_MS)
