"""The sequential model of topics, and the laws of what commits do to them.

The model keeps every record with what became of it: it lives, or was deleted, or was lost to a cap or the TTL, or is a
done job. States of the engine must agree with that, and each loss must have its reason. `queues` has who holds which job.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.batch import Record, concat
from headrace.objects import keys
from headrace.topics.runs import Runs
from headrace.topics.values import LEASES, Match, TopicConfig, WriteRequest, topic_of
from headrace.wal.state import Entry, LogState
from tests.simulation.queues import TOLD, LeaseLog, Queues
from tests.simulation.topic_pasts import join_again, remember
from tests.support.tags import matches

if TYPE_CHECKING:
    from tests.simulation.log_model import LogModel, View
    from tests.simulation.world import World

DELETED, LOST = "deleted", "lost"


class Put(NamedTuple):
    """A request to create or configure a topic."""

    config: TopicConfig


class Drop(NamedTuple):
    """A request to delete a topic, with all its records or only if it has none."""

    if_empty: bool


class Erase(NamedTuple):
    """A request to delete records."""

    before_seq: int | None
    match: Match | None

    def covers(self, record: Record) -> bool:
        """Returns whether a record is one that the request is about."""
        is_before = self.before_seq is None or record.offset + 1 < self.before_seq
        return is_before and matches(self.match, record.key)


class Key(NamedTuple):
    """A write that has a key."""

    first: int
    end: int
    until_ms: int


class Effect(NamedTuple):
    """What an operation has done to a topic: the records that it wrote, and how many it deleted."""

    log: LogModel
    kind: str
    first: int
    end: int
    deleted: int = 0


@dataclass
class TopicLog:
    """What the model knows of one topic beside its `LogModel`.

    Attributes:
        gone: what became of records that no reader gets any more, and at which step.
        configs: the configurations, each with the step from which on it is in force.
        evicted: the floors below which records were lost, likewise.
        exact: whether the engine can know the bytes exactly: no cap or TTL has cut into a mark.
        leases: the lease log; None if it is no queue.
    """

    records: list[Record] = field(default_factory=list)
    gone: dict[int, tuple[str, int]] = field(default_factory=dict)
    configs: list[tuple[int, TopicConfig]] = field(default_factory=list)
    evicted: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    keys: dict[str, Key] = field(default_factory=dict)
    key_history: list[tuple[str, int, int]] = field(default_factory=list)
    exact: bool = True
    leases: LeaseLog | None = None

    @property
    def config(self) -> TopicConfig:
        """The configuration in force."""
        return self.configs[-1][1]

    def is_gone(self, offset: int, step: int | None = None) -> str:
        """Returns what had become of a record at a step, or now; empty if it lives."""
        how, at = self.gone.get(offset, ("", 0))
        if how and (step is None or at <= step):
            return how
        return "done" if self.leases is not None and self.leases.is_done(offset, step) else ""

    def configs_since(self, step: int) -> list[TopicConfig]:
        """Returns the configurations that were in force at a step or later."""
        begun = max((number for number, (at, _) in enumerate(self.configs) if at <= step), default=0)
        return [config for _, config in self.configs[begun:]]

    def may_be_expired(self, offset: int, step: int, latest_ms: int) -> bool:
        """Returns whether a record has expired by some clock, under a TTL that was in force at a step or later."""
        ttls = [config.ttl_ms for config in self.configs_since(step) if config.ttl_ms]
        latest_ms = max(latest_ms, max(one.time_ms for one in self.records))
        return any(self.records[offset].time_ms < latest_ms - ttl for ttl in ttls)

    def evicted_at(self, step: int | None = None) -> int:
        """Returns the floor of losses at a step, or now."""
        return max((floor for at, floor in self.evicted if step is None or at <= step), default=0)


def size_of(record: Record) -> int:
    """Returns the bytes that a record counts."""
    return len(record.data) + len(record.meta or b"")


class Topics:
    """Follows the commits of topics. `effects` has what each operation did."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.effects: defaultdict[int, list[Effect]] = defaultdict(list)
        self.queues = Queues(world)
        self._entry: Entry | None = None

    def _fails(self, law: str, text: str) -> None:
        entry = self._entry
        where = (
            f"[{entry.log_id[-8:]}@{entry.offset} {entry.kind} ids={','.join(entry.request_ids)}]" if entry else ""
        )
        self._world.broken(law, f"{where} {text}")

    def _law(self, law: str) -> str:
        self._world.checked[law] += 1
        return law

    def apply(self, log: LogModel, view: View, entry: Entry, step: int) -> View:
        """Applies an entry of a topic or a lease log; returns the view after it."""
        self._entry = entry
        records = list(self._world.payload_of(entry).records(view.next_offset))
        times = [run.time_ms for run in entry.times for _ in range(run.count)]
        if len(records) != entry.count or len(times) != entry.count:
            self._fails("whole batches", "the payload has another count")
        if any(after < before for before, after in zip(log.times[-1:] + times, times, strict=False)):
            self._fails("append times never fall", f"{log.times[-1:]} {times}")
        records = [record._replace(time_ms=time) for record, time in zip(records, times, strict=True)]
        log.records += [record.data for record in records]
        log.times += times
        log.versions += [0] * len(records)
        if log.config.role == LEASES:
            self.queues.apply(log, entry, records, step)
        else:
            self._apply(log, entry, records, step)
        return view._replace(
            next_offset=view.next_offset + entry.count,
            ended={"delete": "deleted"}.get(entry.kind, view.ended),
            definition=entry.state.definition,
        )

    def applied(self, log: LogModel, entry: Entry, step: int) -> None:
        """An entry of a topic or a lease log is applied, also one of a recovery, which leaves all but the incarnation."""
        if entry.kind == "recover":
            law = self._law("a recovery changes nothing else")
            before = log.entries[-2].state.extension if len(log.entries) > 1 else None
            if before is None and log.config.role != LEASES:
                config = topic_of(entry.state).config
                if config != TopicConfig(type="queue" if log.config.companions else "log"):
                    self._fails(law, f"{log.config.name} is of another type: {config}")
                log.topic.configs.append((step, config))
            elif before != entry.state.extension:
                self._fails(law, f"{entry.state.extension}, was {before}")
            join_again(self._world)
        if self._world.plan.disasters:
            remember(log)

    def _apply(self, log: LogModel, entry: Entry, records: list[Record], step: int) -> None:
        topic: TopicLog = log.topic
        if entry.kind == "create":
            topic.configs.append((step, topic_of(entry.state).config))
            if topic.config.type == "queue":
                topic.leases = LeaseLog(log)
        if entry.kind == "delete":
            self._drop(log, topic, entry)
            return
        before = log.entries[-2].state if len(log.entries) > 1 else LogState()
        if entry.kind in ("create", "data"):
            self._write(log, topic, entry, records, step)
        topic.records += records
        if entry.kind == "erase":
            self._erase(log, topic, entry, before, step)
        self._lose(topic, entry, before, step)
        if entry.kind == "configure":
            request = self._request(entry.id)
            config = topic_of(entry.state).config
            if not isinstance(request, Put) or config != request.config:
                self._fails(self._law("a configuration is the one that was asked for"), f"{request} {config}")
            topic.configs.append((step, config))
            self._note(entry, Effect(log, "configure", 0, 0))
        self._count(topic, entry)

    def _drop(self, log: LogModel, topic: TopicLog, entry: Entry) -> None:
        """Who deletes an empty topic deletes no record."""
        request, start = self._request(entry.id), self._start(entry.id)
        if isinstance(request, Drop) and request.if_empty:
            law = self._law("an empty topic has no record")
            alive = [
                offset
                for offset in range(log.now.next_offset)
                if not topic.is_gone(offset) and not topic.may_be_expired(offset, start, self._world.latest_ms)
            ]
            if alive:
                self._fails(law, f"{alive} live")
        self._note(entry, Effect(log, "delete", 0, 0))

    def _start(self, request_id: str) -> int:
        return self._world.ops[int(request_id.partition(".")[0])].start

    def _request(self, request_id: str) -> Any:
        return self._world.ops[int(request_id.partition(".")[0])].request

    def _note(self, entry: Entry, effect: Effect, request_id: str = "") -> None:
        self.effects[int((request_id or entry.id).partition(".")[0])].append(effect)

    def _write(self, log: LogModel, topic: TopicLog, entry: Entry, records: list[Record], step: int) -> None:
        """What was asked for is there, once, and in the order of the requests; a key is used once."""
        at, batches, fresh = entry.offset, [], set[str]()
        for request_id in entry.request_ids:
            request = self._request(request_id)
            if isinstance(request, Put):
                if request.config != topic.config:
                    self._fails(self._law("a configuration is the one that was asked for"), f"{request}")
                self._note(entry, Effect(log, "create", 0, 0), request_id)
                continue
            if not isinstance(request, WriteRequest):
                at += self.queues.buried(log, records, step)
                continue
            if entry.kind == "create" and request.config != topic.config:
                self._fails(self._law("a configuration is the one that was asked for"), f"{request}")
            law = self._law("one append per key")
            if request.key is not None and request.key in fresh:
                continue
            if request.key is not None and topic.config.idempotency_window_ms:
                known = topic.keys.get(request.key)
                if known is not None and entry.committed_ms < known.until_ms:
                    self._fails(law, f"{request.key} has {known}, and is used again")
                fresh.add(request.key)
                end, until_ms = at + len(request.records), entry.committed_ms + topic.config.idempotency_window_ms
                topic.keys[request.key] = Key(at, end, until_ms)
                topic.key_history.append((request.key, at, end))
            written = self.effects[int(request_id.partition(".")[0])]
            if any(effect.kind == "write" for effect in written):
                self._fails("a request is applied once", request_id)
            self._note(entry, Effect(log, "write", at, at + len(request.records)), request_id)
            at += len(request.records)
            batches.append(request.records)
        asked = [record[2:] for record in concat(batches).records(0)]
        if (batches and [record[2:] for record in records] != asked) or at != entry.next_offset:
            self._fails("whole batches", "the entry does not hold what was asked")

    def _erase(self, log: LogModel, topic: TopicLog, entry: Entry, before: LogState, step: int) -> None:
        """A delete removes records that it is about; done jobs leave the jobs log silently."""
        law = self._law("a delete removes what it is about")
        request, victims = self._request(entry.id), 0
        evicted = topic_of(entry.state).evict_floor
        removed = self._removed(log.log_id, entry.state).add(0, entry.state.floor)
        for first, end in removed.within(before.floor, entry.next_offset):
            for offset in range(first, end):
                if offset in topic.gone or offset < evicted:
                    continue
                if not isinstance(request, Erase):
                    if topic.is_gone(offset) != "done":
                        self._fails(law, f"{offset} leaves the jobs log, and is not done")
                elif not request.covers(topic.records[offset]):
                    self._fails(law, f"{request} {topic.records[offset]}")
                else:
                    victims += 1
                topic.gone[offset] = (DELETED, step)
        if not isinstance(request, Erase):
            topic.exact = False
        self._note(entry, Effect(log, "erase", 0, 0, victims))

    def _removed(self, log_id: str, state: LogState) -> Runs:
        topic = topic_of(state)
        inline = Runs.of_flat(topic.removed)
        if topic.base is None or topic.base.end <= state.floor:
            return inline
        key = keys.removed(log_id, topic.base.number, topic.base.nonce)
        for page in topic.named_pages(key, self._object(key)):
            inline = inline.union(Runs.decode(self._object(page), page))
        return inline.above(state.floor)

    def _object(self, key: str) -> bytes:
        objects: Any = self._world.objects
        data: bytes = objects._objects.get(key, b"")
        if not data:
            self._fails("an object exists before it is named", key)
        return data

    def _lose(self, topic: TopicLog, entry: Entry, before: LogState, step: int) -> None:
        """Records are lost only to a cap that is exceeded, or when their time is over; and that is told."""
        self._law("a record is lost for a reason")
        state, after, was = entry.state, topic_of(entry.state), topic_of(before)
        if after.evict_floor < was.evict_floor or state.floor < before.floor or after.evict_floor > state.floor:
            self._fails(
                "floors never fall", f"from {before.floor} {was.evict_floor} to {state.floor} {after.evict_floor}"
            )
        if any(offset not in topic.gone for offset in range(before.floor, state.floor)):
            topic.exact = False  # a mark may be cut: its bytes are shared evenly
        config = topic.config
        cutoff = max(entry.committed_ms, state.append_time_ms) - config.ttl_ms if config.ttl_ms else 0
        gone = {offset for offset in range(before.floor, entry.next_offset) if topic.is_gone(offset)}
        lost = [offset for offset in range(before.floor, state.floor) if offset not in gone]
        by_cap = [offset for offset in lost if topic.records[offset].time_ms >= cutoff]
        living = entry.next_offset - before.floor - len(gone)
        if by_cap:
            self._capped(topic, entry, living, len(lost), step)
        for offset in lost:
            if offset >= after.evict_floor:
                self._fails("what is lost is told", f"{offset} lived, floor={state.floor} told={after.evict_floor}")
            topic.gone[offset] = (LOST, step)
        if after.evict_floor > was.evict_floor:
            topic.evicted.append((step, after.evict_floor))
            if not self._is_told(topic, after.evict_floor - 1, entry):
                self._fails("only losses are told", f"{after.evict_floor - 1} was not lost: {lost}")
        over = 0 < config.cap_records < living - len(lost)
        if entry.kind in ("create", "data") and config.discard == "old" and over and topic.leases is None:
            self._fails("caps hold", f"{living - len(lost)} live, {config.cap_records} may")
        if state.floor < entry.next_offset and topic.gone.get(state.floor, ("",))[0] == DELETED:
            self._fails("the floor is the first record that lives", f"{state.floor} is deleted")

    def _is_told(self, topic: TopicLog, offset: int, entry: Entry) -> bool:
        """Returns whether readers must learn of a record, or may, since it was done after the lease log was read."""
        if topic.leases is None or topic.is_gone(offset) != "done":
            return topic.is_gone(offset) == LOST
        how, at = topic.leases.done[offset]
        return how in TOLD or at > self._begun(entry)

    def _begun(self, entry: Entry) -> int:
        return min(map(self._start, entry.request_ids))

    def _capped(self, topic: TopicLog, entry: Entry, living: int, lost: int, step: int) -> None:
        """A cap takes no more than it must. Of a queue, jobs that were done since the lease log was read count, too."""
        config, law = topic.config, self._law("caps take no more than they must")
        if entry.kind not in ("create", "data") or config.discard != "old":
            self._fails(law, f"{entry.kind} lost {lost}")
        if config.cap_bytes:
            return  # by shares of marks
        slack = 0
        if topic.leases is not None:
            slack = sum(at > self._begun(entry) for _, at in topic.leases.done.values())
        if lost > max(0, living + slack - config.cap_records):
            self._fails(law, f"{lost} of {living} (+{slack}) lost, {config.cap_records} may live")

    def _count(self, topic: TopicLog, entry: Entry) -> None:
        """Count, bytes and removed records equal the model."""
        law, state = self._law("count, bytes and removed records equal the model"), topic_of(entry.state)
        alive = [offset for offset in range(entry.state.floor, entry.next_offset) if offset not in topic.gone]
        if state.live != len(alive):
            self._fails(law, f"live={state.live}, is {len(alive)}")
        size = sum(size_of(topic.records[offset]) for offset in alive)
        if (topic.exact and state.bytes != size) or bool(state.bytes) != bool(alive):
            self._fails(law, f"bytes={state.bytes}, is {size}")
        is_limited = self._world.limits.most_bytes and entry.kind in ("create", "data")
        if (
            is_limited and topic.exact and not any(map(topic.is_gone, alive))
        ):  # jobs that are done have shares of marks
            law = self._law("what a topic holds is reserved")
            if size > state.reserved:
                self._fails(law, f"{size} held, {state.reserved} reserved")
        if not alive:
            topic.exact = True
        deleted = Runs.of_offsets(
            offset for offset, (how, _) in topic.gone.items() if how == DELETED and offset >= entry.state.floor
        )
        if self._removed(entry.log_id, entry.state) != deleted:
            self._fails(law, f"removed={self._removed(entry.log_id, entry.state)}, is {deleted}")
        if state.marks and (sum(one.live for one in state.marks), sum(one.bytes for one in state.marks)) != (
            state.live,
            state.bytes,
        ):
            self._fails(law, f"marks {state.marks} live={state.live} bytes={state.bytes}")
