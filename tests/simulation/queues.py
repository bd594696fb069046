"""The sequential model of queues: what became of each job, one at a time, by the events of the lease log; and its laws.

It knows nothing of runs, snapshots or group commits. The engine's projections must agree with it after every event.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.batch import Record
from headrace.objects import keys
from headrace.queues import events
from headrace.queues.events import Ack, AnyEvent, Claim, Dead, Deal, Dealt, Extend, Join, Nack, Release, Remove
from headrace.queues.ledger import decode_snapshot, leases_of, restore
from headrace.queues.projection import Projection, fold
from headrace.topics.runs import Runs
from headrace.wal.state import Entry

if TYPE_CHECKING:
    from tests.simulation.log_model import LogModel
    from tests.simulation.topics import TopicLog
    from tests.simulation.world import World


TOLD = ("expired", "lost")  # of jobs that are gone so, readers must learn


class Lease(NamedTuple):
    """A job that a worker holds."""

    claim: str
    node: str
    connection: str
    until: int
    deliveries: int


class Arrived(NamedTuple):
    """A dead job in a dead-letter topic."""

    step: int
    log_id: str


class Returned(NamedTuple):
    """A job that was given back; it can be claimed from `ready` (epoch ms) on."""

    ready: int
    deliveries: int


@dataclass
class LeaseLog:
    """What the model knows of one queue.

    Attributes:
        jobs: the jobs log.
        done: what became of jobs that are done, and at which step.
        cursor: the offset of the first job that was never claimed nor passed over.
        touched: the step of the last event about each job.
        history: the engine's projection and digest after so many events.
        incarnation: that of the jobs log, by the last event; -1 before the first.
        told: the offset below which readers may be told of a loss, since a recovery has lost jobs of which they had to
            learn. Readers did miss those. Of losses the engine knows only the last one, so after such a recovery it can't
            say whether there are others before it; and a gap that is told in vain is better than one that is not told.
    """

    jobs: LogModel
    held: dict[int, Lease] = field(default_factory=dict)
    back: dict[int, Returned] = field(default_factory=dict)
    done: dict[int, tuple[str, int]] = field(default_factory=dict)
    cursor: int = 0
    time_ms: int = 0
    touched: dict[int, int] = field(default_factory=dict)
    history: list[tuple[Projection, str]] = field(default_factory=lambda: [(Projection(), "")])
    incarnation: int = -1
    told: int = 0

    def is_done(self, offset: int, step: int | None = None) -> bool:
        """Returns whether a job was done at a step, or is now."""
        at = self.done.get(offset, ("", 0))[1]
        return offset in self.done and (step is None or at <= step)

    def end_leases(self, now_ms: int) -> None:
        """What a moment changes: leases end, delays are over."""
        self.time_ms = max(self.time_ms, now_ms)
        for offset, lease in list(self.held.items()):
            if lease.until < self.time_ms:
                del self.held[offset]
                self.back[offset] = Returned(0, lease.deliveries)
        for offset, one in list(self.back.items()):
            if one.ready and one.ready <= self.time_ms:
                self.back[offset] = Returned(0, one.deliveries)

    def lost(self) -> events.Lost | None:
        """Returns what the next event must say of the jobs log."""
        jobs = self.jobs
        if self.incarnation >= jobs.incarnation:
            return None
        later = [one.at for one in jobs.now.recoveries if one.incarnation > self.incarnation]
        return events.Lost(jobs.incarnation, min(later) if self.incarnation >= 0 else 0)

    def lose(self) -> None:
        """Nothing is known of the jobs that the jobs log has lost."""
        lost = self.lost()
        if lost is None:
            return
        if self.told > lost.end or any(offset >= lost.end for offset, (how, _) in self.done.items() if how in TOLD):
            self.told = lost.end
        for jobs in (self.held, self.back, self.done):
            for offset in [one for one in jobs if one >= lost.end]:
                del jobs[offset]
        self.cursor = min(self.cursor, lost.end)

    def finish(self, offset: int, how: str, step: int) -> None:
        """A job is done, or is gone."""
        self.held.pop(offset, None)
        self.back.pop(offset, None)
        self.done.setdefault(offset, (how, step))


class Queues:
    """Follows the lease logs of all queues."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.buried_jobs: dict[tuple[str, int], int] = {}  # jobs that dead events moved: at which step
        self.arrived: dict[tuple[str, int], Arrived] = {}  # jobs in dead-letter topics, likewise
        self.told: dict[int, list[AnyEvent]] = {}  # events by the operation that asked for them
        self._event: Any = None

    def _fails(self, law: str, text: str) -> None:
        self._world.broken(law, f"{text}: {self._event}")

    def _law(self, law: str) -> str:
        self._world.checked[law] += 1
        return law

    def of(self, leases: LogModel) -> LeaseLog:
        """Returns the queue to which a lease log belongs."""
        if leases.queue is None:
            logs = self._world.model.logs.values()
            jobs = next(one for one in logs if leases.log_id in {other.log_id for other in one.config.companions})
            leases.queue = jobs.topic.leases
        assert leases.queue is not None, "it is a queue"
        return leases.queue

    def apply(self, leases: LogModel, entry: Entry, records: list[Record], step: int) -> None:
        """Applies an entry of a lease log."""
        if entry.kind == "create":
            return
        queue = self.of(leases)
        now, digest = queue.history[-1]
        for record in records:
            event = self._event = events.decode(record.data, "simulation")
            self._apply(queue, event, entry, step)
            now, digest = fold(now, [event]), events.chain(digest, [record.data])
            queue.history.append((now, digest))
            self._agrees(queue, now)
        self._stored(leases, queue, entry)
        ids = {int(one.partition(".")[0]) for one in entry.request_ids}
        for op_id in ids:
            self.told.setdefault(op_id, []).extend(events.decode(record.data, "simulation") for record in records)

    def _apply(self, queue: LeaseLog, event: AnyEvent, entry: Entry, step: int) -> None:
        law = self._law("events are in the order of time")
        if event.at < queue.time_ms:
            self._fails(law, f"time was {queue.time_ms}")
        law = self._law("events say which jobs were lost")
        if event.lost != queue.lost():
            self._fails(law, f"lost {queue.lost()}")
        queue.incarnation = queue.jobs.incarnation
        for offset in range(event.floor):
            if offset not in queue.done:
                topic: TopicLog = queue.jobs.topic
                if offset not in topic.gone:
                    self._fails("only what is gone is dropped", f"{offset} lives")
                queue.finish(offset, topic.gone[offset][0], step)
        queue.cursor = max(queue.cursor, event.floor)
        queue.end_leases(event.at)
        match event:
            case Claim(id=id_, node=node, until=until, jobs=jobs, connection=connection):
                self._lease(queue, [Dealt(id_, node, until, jobs, connection)], event, step)
            case Deal(hands=hands):
                self._lease(queue, hands, event, step)
            case Ack(node=node, jobs=jobs):
                self._held(queue, node, jobs, step)
                for offset in _offsets(jobs):
                    queue.finish(offset, "acked", step)
            case Nack(node=node, jobs=jobs, ready_at=ready_at):
                for offset, lease in self._held(queue, node, jobs, step):
                    self._give_back(queue, offset, lease, ready_at)
            case Release(node=node, jobs=jobs, connection=connection):
                for offset, lease in self._held(queue, node, jobs, step):
                    if lease.connection != connection:
                        self._fails("a lease is changed by its holder alone", f"{offset} {lease}")
                    self._give_back(queue, offset, lease, 0)
            case Extend(node=node, jobs=jobs, until=until):
                for offset, lease in self._held(queue, node, jobs, step):
                    queue.held[offset] = lease._replace(until=until)
            case Dead(jobs=jobs):
                self._bury(queue, jobs, step)
            case Remove(jobs=jobs):
                self._remove(queue, jobs, entry, event, step)
            case Join():
                pass

    def _lease(self, queue: LeaseLog, hands: Any, event: Claim | Deal, step: int) -> None:
        law, end, fresh = self._law("a job has one lease at most"), queue.jobs.now.next_offset, []
        for hand in hands:
            for offset in _offsets(hand.jobs):
                if offset in queue.done:
                    self._fails("what is done is not delivered again", f"{offset} {queue.done[offset]}")
                if offset in queue.held:
                    self._fails(law, f"{offset} {queue.held[offset]}")
                given = queue.back.pop(offset, None)
                if (given is not None and given.ready) or (given is None and not queue.cursor <= offset < end):
                    self._fails("only what can be claimed is claimed", f"{offset} {given} {queue.cursor} {end}")
                deliveries = given.deliveries + 1 if given is not None else 1
                self._limited(queue, deliveries, hand.id)
                queue.held[offset] = Lease(hand.id, hand.node, hand.connection, hand.until, deliveries)
                queue.touched[offset] = step
                fresh += [offset] if given is None else []
        gone = set(_offsets(event.gone))
        for offset in gone:
            self._expired(queue, offset, event)
            queue.finish(offset, "expired", step)
        last = max([*fresh, *(offset for offset in gone if offset >= queue.cursor)], default=queue.cursor - 1)
        passed = set(range(queue.cursor, last + 1)) - set(fresh) - set(queue.done)
        if passed:
            self._fails(self._law("claims take jobs in their order"), f"{sorted(passed)} were passed over")
        queue.cursor = max(queue.cursor, max(fresh, default=-1) + 1)

    def _limited(self, queue: LeaseLog, deliveries: int, claim_id: str) -> None:
        law = self._law("no job is delivered too often")
        op = self._world.ops.get(int(claim_id.partition(".")[0]))
        configs = queue.jobs.topic.configs_since(op.start if op is not None else 0)
        if all(one.dead_letter and 0 < one.max_deliveries < deliveries for one in configs):
            self._fails(law, f"{deliveries} deliveries")

    def _expired(self, queue: LeaseLog, offset: int, event: AnyEvent) -> None:
        topic: TopicLog = queue.jobs.topic
        now_ms = max(event.at, queue.jobs.tip.state.append_time_ms)
        ttls = [config.ttl_ms for _, config in topic.configs if config.ttl_ms]
        if not ttls or topic.records[offset].time_ms >= now_ms - min(ttls):
            self._fails("only what has expired is passed over", f"{offset} {topic.records[offset].time_ms} {ttls}")

    def _held(self, queue: LeaseLog, node: str, jobs: Any, step: int) -> list[tuple[int, Lease]]:
        law, found = self._law("a lease is changed by its holder alone"), []
        for offset in _offsets(jobs):
            lease = queue.held.get(offset)
            if lease is None or lease.node != node:
                self._fails(law, f"{offset} {lease} {queue.back.get(offset)} {queue.done.get(offset)}")
            else:
                found.append((offset, lease))
            queue.touched[offset] = step
        return found

    def _give_back(self, queue: LeaseLog, offset: int, lease: Lease, ready_at: int) -> None:
        del queue.held[offset]
        queue.back[offset] = Returned(ready_at if ready_at > queue.time_ms else 0, lease.deliveries)

    def _remove(self, queue: LeaseLog, jobs: Any, entry: Entry, event: Remove, step: int) -> None:
        from tests.simulation.topics import Effect, Erase

        law, deleted, effects = self._law("a delete removes what it is about"), 0, self._world.model.topics.effects
        op_id = int(entry.id.partition(".")[0])
        request: Any = self._world.ops[op_id].request
        for offset in _offsets(jobs):
            if isinstance(request, Erase):
                deleted += 1
                if offset in queue.done or not request.covers(queue.jobs.topic.records[offset]):
                    self._fails(law, f"{offset} {request} {queue.done.get(offset)}")
            else:
                self._expired(queue, offset, event)
            queue.finish(offset, "deleted" if isinstance(request, Erase) else "expired", step)
            queue.touched[offset] = step
        effects[op_id].append(Effect(queue.jobs, "erase", 0, 0, deleted))

    # Dead letters.

    def _bury(self, queue: LeaseLog, jobs: Any, step: int) -> None:
        law = self._law("a job is dead once, and then it is in the dead-letter topic")
        for offset in _offsets(jobs):
            given = queue.back.get(offset)
            if given is None or given.ready or (queue.jobs.log_id, offset) in self.buried_jobs:
                self._fails(law, f"{offset} {given} {queue.held.get(offset)} {queue.done.get(offset)}")
            self.buried_jobs[queue.jobs.log_id, offset] = step
            queue.finish(offset, "dead", step)
            queue.touched[offset] = step

    def buried(self, log: LogModel, records: list[Record], step: int) -> int:
        """Notes the records of an entry that are dead jobs; returns how many."""
        law = self._law("a job is dead once, and then it is in the dead-letter topic")
        for record in records:
            meta = json.loads(record.meta or b"{}")
            offset = int(meta.get("$dead_letter_src_seq", "0")) - 1
            model = self._world.model
            source = next(
                (
                    one.log_id
                    for one in model.logs.values()
                    if one.config.name == meta.get("$dead_letter_from")
                    and not one.config.role
                    and one.topic.records[offset : offset + 1]
                    and one.topic.records[offset].data == record.data
                ),
                "",
            )
            job = (source, offset)
            if not source or job in self.arrived:
                self._world.broken(law, f"{log.config.name} has {record}, which is no new job")
            self.arrived[job] = Arrived(step, log.log_id)
        return len(records)

    def at_rest(self) -> None:
        """Each dead job is in the dead-letter topic, since the same moment."""
        law = self._law("a job is dead once, and then it is in the dead-letter topic")
        if self.buried_jobs != {job: one.step for job, one in self.arrived.items()}:
            self._world.broken(law, f"buried={self.buried_jobs} arrived={self.arrived}")

    # The engine's projections.

    def _agrees(self, queue: LeaseLog, now: Projection) -> None:
        law = self._law("the projection is what the events say, one by one")
        held = {
            offset: Lease(grant.id, grant.node, grant.connection, grant.until_ms, grant.deliveries)
            for grant in now.grants
            for offset in _offsets(grant.jobs.flat())
        }
        back = {
            offset: Returned(one.ready_ms, one.deliveries) for one in now.back for offset in _offsets(one.jobs.flat())
        }
        if held != queue.held or back != queue.back or now.time_ms != queue.time_ms:
            self._fails(law, f"held={held} model={queue.held} back={back} model={queue.back}")
        if now.hidden != Runs.of_offsets(queue.done):
            self._fails(law, f"done={now.hidden} model={queue.done}")
        self._law("ready, leased and delayed jobs are all that live")
        end = queue.jobs.now.next_offset
        if sum(now.counts(end)) != end - len(queue.done):
            self._fails("ready, leased and delayed jobs are all that live", f"{now.counts(end)} {end} {queue.done}")

    def _stored(self, leases: LogModel, queue: LeaseLog, entry: Entry) -> None:
        """The state holds the fold of all events, or names an earlier one."""
        law, state = self._law("a stored projection is the fold of all events before it"), leases_of(entry.state)
        now, digest = queue.history[entry.next_offset]
        if state.digest != digest or state.front != now.front:
            self._world.broken(law, f"{leases.log_id[-8:]} digest={state.digest} front={state.front}, is {now.front}")
        if state.projection is not None and restore(state.projection) != now:
            self._world.broken(law, f"{leases.log_id[-8:]} {restore(state.projection)}, is {now}")
        if state.base is not None:
            key = keys.snapshot(leases.log_id, state.base.offset, state.base.nonce)
            data = self._world.objects._objects.get(key)
            point = decode_snapshot(data, key) if data is not None else None
            if point is None or (point.projection, point.digest) != queue.history[state.base.offset]:
                self._world.broken(law, f"{key} {point}, is {queue.history[state.base.offset]}")


def _offsets(flat: tuple[int, ...]) -> list[int]:
    return [offset for first, end in Runs.of_flat(flat) for offset in range(first, end)]
