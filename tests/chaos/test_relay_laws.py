"""Each law of the relay fails on what breaks it, and none on what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.relay_laws import KEPT, LAWS, Cut, Push, Record, Relayed, Route, Sent, judge


def records(topic: str, *tags: str) -> list[Record]:
    return [Record(seq, f"{topic}-{seq}", tag) for seq, tag in enumerate(tags, start=1)]


def good() -> Relayed:
    """Returns what keeps all laws: a filtered copy; a watcher that a lost connection sent back, and that a cap and a TTL
    cut; one of fewer topics.
    """
    source = records("a", f"{KEPT}1", "x", f"{KEPT}2")
    copies = [Record(1, "a-1", f"{KEPT}1"), Record(2, "a-3", f"{KEPT}2")]
    capped = [Record(3, "c-3", "x"), Record(4, "c-4", "x")]
    relayed = Relayed(
        routes=[Route("a", "b", KEPT)],
        cuts={"c": Cut(cap_records=2), "d": Cut(ttl_ms=1000)},
        follows={"w": ("a", "b", "c", "d"), "x": ("a",)},
        pushes=[
            Push("a", ("a-1", "a-2"), 1),
            Push("a", ("a-3",), 3),
            Push("c", ("c-1", "c-2", "c-3", "c-4"), 1),
            Push("d", ("d-1",), 1, begun_ms=5000),
            Push("d", ("d-2",), 2, begun_ms=6001),
        ],
        topics={"a": source, "b": copies, "c": capped, "d": []},
        heads={"a": 3, "b": 2, "c": 4, "d": 2},
    )
    relayed.watched["x"] = [Sent("a", 0, 1, 3, tuple(source))]
    relayed.watched["w"] = [
        Sent("a", 0, 1, 2, tuple(source[:2])),
        Sent("a", 2, 2, 3, tuple(source[1:])),
        Sent("b", 0, 1, 2, tuple(copies)),
        Sent("c", 0, 1, 1, (Record(1, "c-1", "x"),)),
        Sent("c", 1, 2, 2, is_gap=True),
        Sent("c", 2, 3, 4, tuple(capped)),
        Sent("d", 0, 1, 1, is_gap=True, noted_ms=6000),
        Sent("d", 1, 2, 2, (Record(2, "d-2", "x"),)),
    ]
    return relayed


def a_record_is_lost(relayed: Relayed) -> None:
    del relayed.topics["a"][1]


def a_record_is_there_twice(relayed: Relayed) -> None:
    relayed.topics["a"].append(Record(4, "a-1", f"{KEPT}1"))


def a_copy_is_missing(relayed: Relayed) -> None:
    relayed.topics["b"].pop()


def a_copy_comes_twice(relayed: Relayed) -> None:
    relayed.topics["b"].append(Record(3, "a-3", f"{KEPT}2"))


def copies_are_in_another_order(relayed: Relayed) -> None:
    relayed.topics["b"].reverse()


def a_copy_did_not_pass_the_filter(relayed: Relayed) -> None:
    relayed.topics["b"][0] = Record(1, "a-2", "x")


def a_watcher_misses_the_end(relayed: Relayed) -> None:
    del relayed.watched["w"][2]


def a_gap_that_no_cap_made(relayed: Relayed) -> None:
    relayed.watched["w"][2] = Sent("b", 0, 1, 2, is_gap=True)


def a_gap_that_the_cap_explains_only_in_part(relayed: Relayed) -> None:
    relayed.watched["w"].append(Sent("c", 1, 2, 3, is_gap=True))


def a_gap_before_the_ttl_is_over(relayed: Relayed) -> None:
    relayed.watched["w"].append(Sent("d", 0, 1, 2, is_gap=True, noted_ms=7000))


def a_watcher_of_few_topics_misses_one(relayed: Relayed) -> None:
    relayed.watched["x"].clear()


def a_watcher_is_shown_something_else(relayed: Relayed) -> None:
    relayed.watched["w"][2] = Sent("b", 0, 1, 2, (Record(1, "a-2", ""), Record(2, "a-3", "")))


def a_frame_begins_behind_the_next(relayed: Relayed) -> None:
    relayed.watched["w"].append(Sent("a", 1, 3, 3, (Record(3, "a-3", f"{KEPT}2"),)))


def a_frame_has_a_hole(relayed: Relayed) -> None:
    source = relayed.topics["a"]
    relayed.watched["w"].append(Sent("a", 0, 1, 3, (source[0], source[2])))


BREAKS: dict[Callable[[Relayed], None], str] = {
    a_record_is_lost: "an acknowledged record is in its topic once",
    a_record_is_there_twice: "an acknowledged record is in its topic once",
    a_copy_is_missing: "a destination is its filtered source",
    a_copy_comes_twice: "a destination is its filtered source",
    copies_are_in_another_order: "a destination is its filtered source",
    a_copy_did_not_pass_the_filter: "a destination is its filtered source",
    a_watcher_misses_the_end: "a watcher sees everything",
    a_watcher_of_few_topics_misses_one: "a watcher sees everything",
    a_gap_that_no_cap_made: "a gap is what a cap or a ttl cut",
    a_gap_that_the_cap_explains_only_in_part: "a gap is what a cap or a ttl cut",
    a_gap_before_the_ttl_is_over: "a gap is what a cap or a ttl cut",
    a_watcher_is_shown_something_else: "a watcher is sent what is there",
    a_frame_begins_behind_the_next: "frames leave nothing out",
    a_frame_has_a_hole: "frames leave nothing out",
}


def test_what_is_good_breaks_no_law_and_each_is_looked_at() -> None:
    verdicts = judge(good())
    assert not [what for verdict in verdicts.values() for what in verdict.broken]
    assert all(verdict.checked for verdict in verdicts.values())


@pytest.mark.parametrize("spoil", BREAKS)
def test_each_law_fails_on_what_breaks_it(spoil: Callable[[Relayed], None]) -> None:
    relayed = good()
    spoil(relayed)
    assert judge(relayed)[BREAKS[spoil]].count


def test_every_law_has_what_breaks_it() -> None:
    assert set(BREAKS.values()) == {law.__name__.replace("_", " ") for law in LAWS}
