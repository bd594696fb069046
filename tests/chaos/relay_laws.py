"""What routers copied and watchers were sent, and the laws of it. Pure: each says what contradicts it, and how often it
looked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.chaos.laws import Verdict

KEPT = "keep:"  # how the tag of a record begins that the filtering router copies


class Record(NamedTuple):
    """A record as a reader gets it."""

    seq: int
    id: str
    tag: str


class Cut(NamedTuple):
    """What makes a topic drop old records: a cap, or a TTL in ms; 0 is none."""

    cap_records: int = 0
    ttl_ms: int = 0


class Push(NamedTuple):
    """A batch that was acknowledged: its records, the seq of the first, and when its first try began (epoch ms)."""

    topic: str
    ids: tuple[str, ...]
    first_seq: int
    begun_ms: int = 0


class Sent(NamedTuple):
    """What a watcher was sent of a topic: records from one seq to another, or a gap there, and when it heard of the gap
    (epoch ms). It was at `place` before.
    """

    topic: str
    place: int
    first: int
    last: int
    records: tuple[Record, ...] = ()
    is_gap: bool = False
    noted_ms: int = 0


class Route(NamedTuple):
    """A router: what it copies from where to where."""

    source: str
    dest: str
    prefix: str


@dataclass
class Relayed:
    """Everything that happened.

    Attributes:
        cuts: the topics that drop old records, and why.
        follows: the topics of each watcher.
        topics, heads: the records at rest, and the last seq, of each topic.
    """

    routes: list[Route] = field(default_factory=list)
    cuts: dict[str, Cut] = field(default_factory=dict)
    follows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pushes: list[Push] = field(default_factory=list)
    watched: dict[str, list[Sent]] = field(default_factory=lambda: defaultdict(list))
    topics: dict[str, list[Record]] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)


def an_acknowledged_record_is_in_its_topic_once(relayed: Relayed) -> Verdict:
    """Checks that what was acknowledged is at the seqs that the answer named, and nowhere else."""
    verdict = Verdict()
    at: dict[tuple[str, str], list[int]] = defaultdict(list)
    for topic, records in relayed.topics.items():
        for record in records:
            at[topic, record.id].append(record.seq)
    for push in relayed.pushes:
        for place, one in enumerate(push.ids):
            seqs = at[push.topic, one]
            may_be_gone = push.topic in relayed.cuts and not seqs
            verdict.require(
                may_be_gone or seqs == [push.first_seq + place], push.topic, one, seqs, push.first_seq + place
            )
    return verdict


def a_destination_is_its_filtered_source(relayed: Relayed) -> Verdict:
    """Checks that a destination at rest has what its source has and the filter lets through: each once, in order."""
    verdict = Verdict()
    for route in relayed.routes:
        wanted = [record.id for record in relayed.topics[route.source] if record.tag.startswith(route.prefix)]
        copied = [record.id for record in relayed.topics[route.dest]]
        verdict.require(len(copied) == len(wanted), route, "copied", len(copied), "wanted", len(wanted))
        for place, (one, other) in enumerate(zip(copied, wanted, strict=False)):
            verdict.require(one == other, route, place, one, other)
    return verdict


def a_watcher_sees_everything(relayed: Relayed) -> Verdict:
    """Checks that each seq of each topic of a watcher was sent to it, or lies in a gap that it was told of."""
    verdict = Verdict()
    for watcher, topics in relayed.follows.items():
        told: dict[str, set[int]] = defaultdict(set)
        for one in relayed.watched[watcher]:
            told[one.topic] |= set(range(one.first, one.last + 1)) if one.is_gap else {r.seq for r in one.records}
        for topic in topics:
            missing = sorted(set(range(1, relayed.heads[topic] + 1)) - told[topic])
            verdict.require(not missing, watcher, topic, "never sent", missing[:5], len(missing))
    return verdict


def a_gap_is_what_a_cap_or_a_ttl_cut(relayed: Relayed) -> Verdict:
    """Checks that the records of a gap were beyond the cap in the end, or had lived as long as the TTL when the watcher
    heard of the gap.
    """
    verdict = Verdict()
    begun: dict[str, list[tuple[int, int]]] = defaultdict(list)  # of each batch: its first seq, and when it began
    for push in relayed.pushes:
        begun[push.topic].append((push.first_seq, push.begun_ms))
    for watcher, sent in relayed.watched.items():
        for one in sent:
            if not one.is_gap:
                continue
            cut = relayed.cuts.get(one.topic, Cut())
            is_capped = bool(cut.cap_records) and one.last <= relayed.heads[one.topic] - cut.cap_records
            newest_ms = max((ms for first, ms in begun[one.topic] if first <= one.last), default=0)
            is_expired = bool(cut.ttl_ms) and newest_ms + cut.ttl_ms <= one.noted_ms
            verdict.require(is_capped or is_expired, watcher, "gap of what nothing cut", one, cut, newest_ms)
    return verdict


def a_watcher_is_sent_what_is_there(relayed: Relayed) -> Verdict:
    """Checks that a record has the same seq for a watcher as for a reader."""
    verdict = Verdict()
    there = {(topic, record.seq): record.id for topic, records in relayed.topics.items() for record in records}
    for watcher, sent in relayed.watched.items():
        for one in sent:
            for record in one.records:
                expected = there.get((one.topic, record.seq))
                is_gone = expected is None and one.topic in relayed.cuts
                verdict.require(is_gone or expected == record.id, watcher, one.topic, record, expected)
    return verdict


def frames_leave_nothing_out(relayed: Relayed) -> Verdict:
    """Checks that what a watcher is sent begins no later than where it is, that its records ascend one by one, and that it
    comes back only as far as a lost connection explains: behind what it was sent, never ahead.
    """
    verdict = Verdict()
    for watcher, sent in relayed.watched.items():
        for one in sent:
            verdict.require(one.first <= one.place + 1, watcher, "skips", one.topic, one.place, one.first)
            if not one.is_gap:
                seqs = [record.seq for record in one.records]
                verdict.require(seqs == list(range(one.first, one.last + 1)), watcher, "holes", one.topic, seqs[:5])
    return verdict


LAWS: tuple[Callable[[Relayed], Verdict], ...] = (
    an_acknowledged_record_is_in_its_topic_once,
    a_destination_is_its_filtered_source,
    a_watcher_sees_everything,
    a_gap_is_what_a_cap_or_a_ttl_cut,
    a_watcher_is_sent_what_is_there,
    frames_leave_nothing_out,
)


def judge(relayed: Relayed) -> dict[str, Verdict]:
    """Returns what became of each law, by its name."""
    return {law.__name__.replace("_", " "): law(relayed) for law in LAWS}
