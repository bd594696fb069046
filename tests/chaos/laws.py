"""The laws of a history. Pure: each takes what happened and says what contradicts it, and how often it looked.

What is at a position is what any reader ever saw there; the first law is that all of them saw the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tests.chaos.history import Append, History, Life, op_of

SHOWN = 10


@dataclass
class Verdict:
    """How often a law was looked at, and what broke it (the first few, and how many)."""

    checked: int = 0
    broken: list[str] = field(default_factory=list)
    count: int = 0

    def require(self, holds: bool, *said: object) -> None:
        """Notes one look."""
        self.checked += 1
        if not holds:
            self.count += 1
            if len(self.broken) < SHOWN:
                self.broken.append(" ".join(map(str, said)))


class Case:
    """A history and what follows from it: the record at each position, and the append that wrote it."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.standing: dict[Life, dict[int, str]] = defaultdict(dict)
        self.seen_otherwise: list[tuple[Life, int, str, str, str]] = []
        for page in history.pages:
            found_at = self.standing[page.life]
            for position, record_id in enumerate(page.ids, page.start):
                if found_at.setdefault(position, record_id) != record_id:
                    self.seen_otherwise.append((page.life, position, found_at[position], record_id, page.reader))
        self.base = {fork.life: fork.at for fork in history.forks}
        self.appends = {append.op: append for append in history.appends}

    def own(self, life: Life) -> Iterator[tuple[int, str]]:
        """Positions and records of a life, in order, without those that a fork inherited."""
        base = self.base.get(life, 0)
        return ((position, found) for position, found in sorted(self.standing[life].items()) if position >= base)

    def batches(self, life: Life) -> list[tuple[Append, list[int]]]:
        """Returns the appends that are in a life, in order of their first record, and the positions of their
        records.
        """
        found: dict[str, list[int]] = {}
        for position, record_id in self.own(life):
            found.setdefault(op_of(record_id), []).append(position)
        return [(self.appends[op], positions) for op, positions in found.items() if op in self.appends]


Law = Callable[[Case], Verdict]


def every_reader_sees_the_same(case: Case) -> Verdict:
    """Checks that what was once read at a position is there for ever, for every reader."""
    verdict = Verdict(checked=sum(len(page.ids) for page in case.history.pages))
    for what in case.seen_otherwise:
        verdict.require(False, *what)
    return verdict


def readers_go_on_without_a_gap(case: Case) -> Verdict:
    """Checks that a page holds as many records as its offsets say, and that the next page begins where it ended."""
    verdict = Verdict()
    last: dict[tuple[str, Life], int] = {}
    for page in case.history.pages:
        verdict.require(page.next - page.start == len(page.ids), page.reader, page.life, page.start, page.next)
        verdict.require(page.next <= page.tail, page.reader, page.life, page.next, "tail", page.tail)
        before = last.get((page.reader, page.life))
        verdict.require(before is None or page.start in (0, before), page.reader, page.life, before, page.start)
        last[page.reader, page.life] = page.next
    for life in case.history.whole:
        found_at = case.standing[life]
        verdict.require(sorted(found_at) == list(range(len(found_at))), life, "has gaps")
    return verdict


def acknowledged_stands_where_it_was_said(case: Case) -> Verdict:
    """Checks that an acknowledged batch is at the position that its answer named, or, if the answer named none,
    somewhere.
    """
    verdict = Verdict()
    for append in case.history.acknowledged():
        life = append.life
        assert life is not None
        found_at, whole = case.standing[life], life in case.history.whole
        if append.end is None:
            continue
        for position, record_id in enumerate(append.ids(), append.end - append.parts):
            if whole or position in found_at:
                verdict.require(
                    found_at.get(position) == record_id, life, position, record_id, found_at.get(position)
                )
    standing = {record_id for found_at in case.standing.values() for record_id in found_at.values()}
    for append in case.history.acknowledged():
        if append.life in case.history.whole:
            verdict.require(set(append.ids()) <= standing, append.life, append.op, "is acknowledged and lost")
    return verdict


def nothing_else_stands(case: Case) -> Verdict:
    """Checks that every record found was sent to that stream before it was read, and that its append was not refused."""
    verdict = Verdict()
    for life in list(case.standing):
        for position, record_id in case.own(life):
            append = case.appends.get(op_of(record_id))
            verdict.require(
                append is not None and record_id in append.ids(), life, position, record_id, "is not ours"
            )
            if append is not None:
                verdict.require(append.stream == life.stream, life, position, record_id, "of", append.stream)
                verdict.require(append.outcome != "refused", life, position, record_id, "was refused")
    for page in case.history.pages:
        base = case.base.get(page.life, 0)
        for position, record_id in enumerate(page.ids, page.start):
            append = case.appends.get(op_of(record_id))
            if append is not None and position >= base:
                verdict.require(append.started < page.ended, page.life, record_id, "was read before it was sent")
    return verdict


def nothing_stands_twice(case: Case) -> Verdict:
    """Checks that each record is found only once in all lives of its stream, whatever was repeated."""
    verdict = Verdict()
    at: dict[str, tuple[Life, int]] = {}
    for life in list(case.standing):
        for position, record_id in case.own(life):
            verdict.require(record_id not in at, record_id, at.get(record_id), (life, position))
            at[record_id] = (life, position)
    return verdict


def batches_are_whole(case: Case) -> Verdict:
    """Checks that the records of a batch are complete, adjacent and in order (the newest page may end inside one)."""
    verdict = Verdict()
    for life, found_at in list(case.standing.items()):
        for append, positions in case.batches(life):
            cut_off = life not in case.history.whole and positions[-1] + 1 not in found_at
            first = positions[0]
            wanted = list(enumerate(append.ids(), first))
            seen = [(position, found_at.get(position)) for position, _ in wanted]
            if cut_off:
                wanted, seen = wanted[: len(positions)], seen[: len(positions)]
            verdict.require(wanted == seen and len(positions) == len(wanted), life, append.op, positions)
    return verdict


def producers_are_exactly_once_in_order(case: Case) -> Verdict:
    """Checks that a producer's batches are in its order, none missing between them."""
    verdict = Verdict()
    for life in case.history.whole:
        order: dict[str, list[int]] = defaultdict(list)
        for append, _ in case.batches(life):
            if append.producer:
                order[append.producer].append(append.seq)
        for producer, found in order.items():
            verdict.require(found == list(range(len(found))), life, producer, found)
    for append in case.history.appends:
        if append.producer:
            verdict.require(append.outcome == "acknowledged", append.op, "was never acknowledged")
    return verdict


def order_respects_time(case: Case) -> Verdict:
    """Checks that what was acknowledged before another append was sent is before it: the order is a linearization."""
    verdict = Verdict()
    for life in list(case.standing):
        earliest_answer, whose = float("inf"), ""
        for append, positions in reversed(case.batches(life)):
            holds = earliest_answer >= append.started
            verdict.require(holds, life, append.op, "at", positions[0], "was sent after the answer to", whose)
            if append.outcome == "acknowledged" and append.ended < earliest_answer:
                earliest_answer, whose = append.ended, append.op
    return verdict


def reads_see_what_was_acknowledged(case: Case) -> Verdict:
    """Checks that a read that begins after an append was answered is told a tail that is not before the end of that
    append.
    """
    verdict = Verdict()
    answered: dict[Life, list[tuple[float, int]]] = defaultdict(list)
    for append in case.history.acknowledged():
        if append.end is not None and append.life is not None:
            answered[append.life].append((append.ended, append.end))
    for known in answered.values():
        known.sort()
        highest = 0
        for number, (ended, end) in enumerate(known):
            highest = max(highest, end)
            known[number] = (ended, highest)
    for page in case.history.pages:
        known = answered[page.life]
        number = bisect_left(known, (page.started, 0))
        if number:
            least = known[number - 1][1]
            verdict.require(page.tail >= least, page.reader, page.life, "tail", page.tail, "after", least)
    return verdict


def an_end_is_final(case: Case) -> Verdict:
    """After the answer to a close nothing follows; after the answer to a delete nothing answers for that life."""
    verdict = Verdict()
    history = case.history
    for ending in history.endings:
        life = ending.life
        later = [append for append in history.acknowledged() if append.life == life and append.started > ending.ended]
        verdict.require(not later, ending, [append.op for append in later])
        pages = [page for page in history.pages if page.life == life and page.started > ending.ended]
        if ending.kind == "delete":
            verdict.require(not pages, ending, "was read later by", [page.reader for page in pages[:3]])
            continue
        for page in pages:
            verdict.require(page.tail == ending.end, ending, "tail later", page.tail)
            verdict.require(page.closed or page.next < page.tail, ending, page.reader, "is not told of the close")
        past = max(case.standing[life], default=-1)
        verdict.require(ending.end is None or past < ending.end, ending, "there is a record at", past)
    return verdict


def incarnations_rise(case: Case) -> Verdict:
    """Checks that a name that is created again has a higher incarnation, and its old one is never seen to begin later."""
    verdict = Verdict()
    lives: dict[str, list[int]] = defaultdict(list)
    for creation in sorted(case.history.creations, key=lambda creation: creation.started):
        lives[creation.life.stream].append(creation.life.incarnation)
    for stream, found in lives.items():
        for before, after in pairwise(found):
            verdict.require(before < after, stream, before, after)
    return verdict


def forks_keep_what_they_inherited(case: Case) -> Verdict:
    """Checks that a fork shows its source's records before the fork point, whatever became of the source."""
    verdict = Verdict()
    for fork in case.history.forks:
        source = case.standing[fork.source]
        for position, record_id in case.standing[fork.life].items():
            if position < fork.at and position in source:
                verdict.require(source[position] == record_id, fork, position, record_id, source[position])
    return verdict


def nothing_surprising_was_answered(case: Case) -> Verdict:
    """Checks that every answer is one that the API's documentation has for its request; none is a 500."""
    verdict = Verdict(checked=len(case.history.appends) + len(case.history.pages))
    for surprise in case.history.surprises:
        verdict.require(False, surprise)
    return verdict


LAWS: dict[str, Law] = {
    law.__name__: law
    for law in (
        every_reader_sees_the_same,
        readers_go_on_without_a_gap,
        acknowledged_stands_where_it_was_said,
        nothing_else_stands,
        nothing_stands_twice,
        batches_are_whole,
        producers_are_exactly_once_in_order,
        order_respects_time,
        reads_see_what_was_acknowledged,
        an_end_is_final,
        incarnations_rise,
        forks_keep_what_they_inherited,
        nothing_surprising_was_answered,
    )
}


def judge(history: History) -> dict[str, Verdict]:
    """Returns the verdict of every law, by its name."""
    case = Case(history)
    return {name: law(case) for name, law in LAWS.items()}
