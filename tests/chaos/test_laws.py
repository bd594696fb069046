"""Each law of a history fails on a history that breaks it, and none on one that does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.history import Append, Creation, Ending, Fork, History, Life, Page
from tests.chaos.laws import LAWS, judge

LOG = Life("log", 0)
BRANCH = Life("branch", 0)
SHORT = Life("short", 0)
AGAIN = Life("short", 1)


def append(life: Life, op: str, parts: int, at: float, end: int, *, producer: str = "", seq: int = 0) -> Append:
    return Append(life.stream, op, parts, at, at + 1, "acknowledged", life, end, producer, seq)


def page(reader: str, life: Life, start: int, ids: tuple[str, ...], at: float, *, tail: int | None = None) -> Page:
    following = start + len(ids)
    return Page(reader, life, start, ids, following, following if tail is None else tail, at, at + 0.5)


def good() -> History:
    """Returns a history that keeps all laws: two producers, a plain append of unknown outcome that was written, one
    that was refused, a fork, and a short life.
    """
    records = ("a.0", "a.1", "u.0", "b.0", "c.0")
    return History(
        appends=[
            append(LOG, "a", 2, 0, 2, producer="p", seq=0),
            Append("log", "u", 1, 1.5, 2.5, "unknown"),
            append(LOG, "b", 1, 3, 4, producer="p", seq=1),
            Append("log", "r", 1, 3, 5, "refused"),
            replace(append(LOG, "c", 1, 5, 5, producer="q"), end=None),
            append(BRANCH, "f", 1, 7, 3),
            append(SHORT, "s", 1, 1, 1),
            append(AGAIN, "t", 1, 9, 1),
        ],
        pages=[
            page("follower", LOG, 0, records[:2], 1.2),
            page("follower", LOG, 2, records[2:], 6.1),
            page("reader", LOG, 0, records, 10),
            page("reader", BRANCH, 0, ("a.0", "a.1", "f.0"), 10),
            replace(page("closed", SHORT, 0, ("s.0",), 4), closed=True),
            page("reader", AGAIN, 0, ("t.0",), 11),
        ],
        creations=[Creation(SHORT, 0, 0.5), Creation(AGAIN, 7, 8), Creation(LOG, -1, -0.5)],
        endings=[Ending("close", SHORT, 2.5, 3, 1), Ending("delete", SHORT, 5, 6)],
        forks=[Fork(BRANCH, LOG, 2)],
        whole={LOG, BRANCH, SHORT, AGAIN},
    )


def reread(history: History, *ids: str, number: int = 2) -> None:
    """What the reader of the log saw, replaced, and its follower never lived."""
    history.pages[number] = page("reader", LOG, 0, ids, 10)
    del history.pages[:2]


def change(history: History, op: str, **fields: object) -> None:
    number = next(n for n, one in enumerate(history.appends) if one.op == op)
    history.appends[number] = replace(history.appends[number], **fields)  # type: ignore[arg-type]


def another_record_at_a_position(history: History) -> None:
    history.pages[1] = page("follower", LOG, 2, ("b.0", "u.0", "c.0"), 6.1)


def a_page_that_does_not_go_on(history: History) -> None:
    history.pages[1] = page("follower", LOG, 3, ("b.0", "c.0"), 6.1)


def a_page_that_counts_wrong(history: History) -> None:
    history.pages[2] = replace(history.pages[2], next=6, tail=6)


def a_lost_batch(history: History) -> None:
    reread(history, "a.0", "a.1", "u.0", "c.0")


def a_lost_batch_whose_place_was_not_said(history: History) -> None:
    reread(history, "a.0", "a.1", "u.0", "b.0")


def a_batch_at_another_place(history: History) -> None:
    change(history, "b", end=3)


def a_record_of_nobody(history: History) -> None:
    reread(history, "a.0", "a.1", "u.0", "b.0", "c.0", "x.0")


def a_record_of_another_stream(history: History) -> None:
    reread(history, "a.0", "a.1", "u.0", "b.0", "c.0", "s.0")


def a_refused_record(history: History) -> None:
    reread(history, "a.0", "a.1", "u.0", "b.0", "c.0", "r.0")


def a_record_that_is_read_before_it_is_sent(history: History) -> None:
    change(history, "u", started=7, ended=8)


def a_doubled_batch(history: History) -> None:
    reread(history, "a.0", "a.1", "u.0", "b.0", "c.0", "u.0")


def a_record_that_outlives_its_life(history: History) -> None:
    history.pages[5] = page("reader", AGAIN, 0, ("t.0", "s.0"), 11)


def half_a_batch(history: History) -> None:
    reread(history, "a.0", "u.0", "b.0", "c.0")


def a_torn_batch(history: History) -> None:
    reread(history, "a.0", "u.0", "a.1", "b.0", "c.0")


def a_producer_out_of_order(history: History) -> None:
    change(history, "a", seq=1)
    change(history, "b", seq=0)


def a_producer_that_skips(history: History) -> None:
    change(history, "b", seq=2)


def a_producer_that_gave_up(history: History) -> None:
    change(history, "b", outcome="unknown")


def a_later_append_that_stands_first(history: History) -> None:
    change(history, "u", started=4.5, ended=6)


def a_read_that_misses_an_answer(history: History) -> None:
    history.pages[0] = page("follower", LOG, 0, ("a.0",), 1.2)


def a_record_behind_a_close(history: History) -> None:
    history.pages[4] = replace(page("closed", SHORT, 0, ("s.0", "t.0"), 4), closed=True)


def an_append_after_a_close(history: History) -> None:
    change(history, "s", started=3.5, ended=3.8)


def a_reader_that_is_not_told_of_the_close(history: History) -> None:
    history.pages[4] = replace(history.pages[4], closed=False)


def a_read_after_a_delete(history: History) -> None:
    history.pages[4] = replace(history.pages[4], started=6.5, ended=7)


def an_incarnation_again(history: History) -> None:
    history.creations.append(Creation(AGAIN, 12, 13))


def a_fork_with_another_past(history: History) -> None:
    history.pages[3] = page("reader", BRANCH, 0, ("a.1", "a.0", "f.0"), 10)


def an_answer_of_500(history: History) -> None:
    history.surprises.append("GET log: 500")


BROKEN: list[tuple[str, Callable[[History], None]]] = [
    ("every_reader_sees_the_same", another_record_at_a_position),
    ("readers_go_on_without_a_gap", a_page_that_does_not_go_on),
    ("readers_go_on_without_a_gap", a_page_that_counts_wrong),
    ("acknowledged_stands_where_it_was_said", a_lost_batch),
    ("acknowledged_stands_where_it_was_said", a_lost_batch_whose_place_was_not_said),
    ("acknowledged_stands_where_it_was_said", a_batch_at_another_place),
    ("nothing_else_stands", a_record_of_nobody),
    ("nothing_else_stands", a_record_of_another_stream),
    ("nothing_else_stands", a_refused_record),
    ("nothing_else_stands", a_record_that_is_read_before_it_is_sent),
    ("nothing_stands_twice", a_doubled_batch),
    ("nothing_stands_twice", a_record_that_outlives_its_life),
    ("batches_are_whole", half_a_batch),
    ("batches_are_whole", a_torn_batch),
    ("producers_are_exactly_once_in_order", a_producer_out_of_order),
    ("producers_are_exactly_once_in_order", a_producer_that_skips),
    ("producers_are_exactly_once_in_order", a_producer_that_gave_up),
    ("order_respects_time", a_later_append_that_stands_first),
    ("reads_see_what_was_acknowledged", a_read_that_misses_an_answer),
    ("an_end_is_final", a_record_behind_a_close),
    ("an_end_is_final", an_append_after_a_close),
    ("an_end_is_final", a_reader_that_is_not_told_of_the_close),
    ("an_end_is_final", a_read_after_a_delete),
    ("incarnations_rise", an_incarnation_again),
    ("forks_keep_what_they_inherited", a_fork_with_another_past),
    ("nothing_surprising_was_answered", an_answer_of_500),
]


def test_a_good_history_keeps_every_law_and_each_law_looks_at_it() -> None:
    verdicts = judge(good())
    assert {name: verdict.broken for name, verdict in verdicts.items() if verdict.count} == {}
    assert all(verdict.checked for verdict in verdicts.values())


@pytest.mark.parametrize(("law", "breaks"), BROKEN, ids=lambda given: getattr(given, "__name__", given))
def test_a_broken_history_breaks_its_law(law: str, breaks: Callable[[History], None]) -> None:
    history = good()
    breaks(history)
    verdict = judge(history)[law]
    assert verdict.count > 0
    assert verdict.broken


def test_every_law_can_fail() -> None:
    assert {law for law, _ in BROKEN} == set(LAWS)


def test_a_batch_at_the_end_of_what_was_seen_may_be_cut_off() -> None:
    history = good()
    history.whole = {BRANCH}
    history.pages = [page("follower", LOG, 0, ("a.0",), 0.5), history.pages[3]]
    assert not judge(history)["batches_are_whole"].count
