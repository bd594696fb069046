"""The laws of answers about topics and queues: what each may say, given all that happened during its call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import (
    Conflict,
    Damaged,
    HeadraceError,
    LimitReached,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    StoreError,
)
from headrace.queues import events
from headrace.queues.events import lease_id
from headrace.queues.values import Claimed, ClaimRequest, Settled, SettleRequest
from headrace.topics.errors import NotEmpty, TopicFull
from headrace.topics.values import Configured, DiffPage, DiffRequest, Erased, TopicView, WriteRequest, Written
from tests.simulation.limits import FEW_TOPICS
from tests.simulation.queues import TOLD
from tests.simulation.topics import DELETED, LOST, Effect, Erase, Put, TopicLog, size_of

if TYPE_CHECKING:
    from tests.simulation.log_model import LogModel
    from tests.simulation.world import Running, World

# Of these, an error says that nothing was written. (A claim or a delete may have written a part.)
_WRITES = ("put", "write", "keyed", "remove", "ack", "nack", "extend", "release")


class TopicAnswers:
    """Judges the answer of one operation."""

    def __init__(self, world: World, running: Running) -> None:
        self._world = world
        self._running = running
        self._model = world.model
        self._name = running.op.name

    def _law(self, law: str) -> str:
        self._world.checked[law] += 1
        return law

    def _fails(self, law: str, text: str) -> None:
        op = self._running.op
        self._world.broken(law, f"operation {op.id} {self._running.kind} {op.name}: {text}")

    def _logs(self) -> list[LogModel]:
        """Returns the logs that the name had during the call and that had not ended before it."""
        start = self._running.start
        return [log for log in self._model.candidates(self._name, start) if not log.ended_before(start)]

    def _effects(self, kind: str) -> list[Effect]:
        return [one for one in self._model.topics.effects[self._running.op.id] if one.kind == kind]

    def _any(self, law: str, check: Any) -> None:
        """One of the logs fits the answer: `check` returns what does not fit, empty if all does."""
        self._law(law)
        found = {log.log_id[-8:]: check(log) for log in self._logs()}
        if all(found.values()):
            self._fails(law, str(found or "answered, and there is no topic"))

    # Writes.

    def put(self, answer: Configured) -> None:
        """A PUT was acknowledged."""
        request: Put = self._running.request
        law = self._law("acknowledged is written")
        if answer.config != request.config or (answer.created and not self._effects("create")):
            self._fails(law, f"{answer} {request}")
        if not answer.created and not self._effects("configure"):
            logs, start = self._logs(), self._running.start
            if not any(request.config in log.topic.configs_since(start) for log in logs):
                self._fails(law, f"{answer} was never in force")

    def written(self, answer: Written) -> None:
        """A write was acknowledged."""
        request: WriteRequest = self._running.request
        law = self._law("acknowledged is written")
        done = self._effects("write")
        place = (answer.first_seq - 1, answer.last_seq)
        if answer.deduped:
            if done or request.key is None:
                self._fails(law, f"{answer} says that it is a repeat, and it is written: {done}")
            self._world.judge.never[self._running.op.id] = "deduped"
            self._any(
                "a repeat was written before",
                lambda log: "" if self._has_key(log, request.key, place) else f"{place} {log.topic.keys}",
            )
        elif [(one.first, one.end) for one in done] != [place]:
            self._fails(law, f"{answer}, is {done}")

    @staticmethod
    def _has_key(log: LogModel, key: str | None, place: tuple[int, int]) -> bool:
        return any(one == (key, *place) for one in log.topic.key_history)

    def erased(self, request: Erase, answer: Erased) -> None:
        """A delete was acknowledged: it says how many records it has removed, and has left none."""
        law, start = self._law("deletes sum to the dead records"), self._running.start
        deleted = sum(one.deleted for one in self._effects("erase"))
        if deleted != answer.deleted:
            self._fails(law, f"{answer}, is {deleted}")

        def left(log: LogModel) -> str:
            topic: TopicLog = log.topic
            view = log.at(start)
            known = topic.records[: view.next_offset if view is not None else 0]
            stay = [one.offset for one in known if request.covers(one) and not self._is_gone(topic, one.offset)]
            return f"{stay} stay" if stay else ""

        self._any("a delete leaves nothing", left)

    def _is_gone(self, topic: TopicLog, offset: int) -> bool:
        return bool(topic.is_gone(offset)) or self._may_be_expired(topic, offset)

    def removed(self, answer: bool) -> None:
        """A delete of a topic was acknowledged."""
        law = self._law("acknowledged is written")
        if answer and not self._effects("delete"):
            self._fails(law, "deleted, and not in the log")
        existed = self._model.existed(self._name, self._running.start)
        if not answer and existed is not None and not existed.now.ended:
            self._fails(law, "deleted before, and it lives")

    # Reads.

    def _may_be_expired(self, topic: TopicLog, offset: int) -> bool:
        """Whether a record has expired by some clock, under a TTL that was in force during the call."""
        return topic.may_be_expired(offset, self._running.start, self._world.latest_ms)

    def page(self, request: DiffRequest, page: DiffPage) -> None:
        """A page after a cursor: every record up to its end is delivered, was deleted or done, is the reader's own, or is
        in the gap.
        """
        self._any(
            "each record is delivered, deleted, the reader's own or in the gap",
            lambda log: self._page(log, request, page),
        )

    def _page(self, log: LogModel, request: DiffRequest, page: DiffPage) -> str:
        start, topic = self._running.start, log.topic
        view = log.at(start)
        known = view.next_offset if view is not None else 0
        if not known <= page.head_seq <= log.now.next_offset:
            return f"head {page.head_seq} is not in {known}..{log.now.next_offset}"
        cursor, gap = request.from_seq, page.gap
        if cursor > page.head_seq:
            if gap is None or (gap.first, gap.last, gap.reason) != (1, page.head_seq, "recreated"):
                return f"cursor {cursor} is beyond {page.head_seq}: {gap}"
            return self._delivered(topic, request, page, page.earliest_seq - 1)
        if gap is None and cursor < topic.evicted_at(start):
            return f"cursor {cursor} is below {topic.evicted_at(start)}, and nobody says so"
        if gap is not None:
            wrong = self._gap(topic, cursor, gap)
            if wrong:
                return wrong
        return self._delivered(topic, request, page, max(cursor, gap.last if gap is not None else 0))

    def _gap(self, topic: TopicLog, cursor: int, gap: Any) -> str:
        if gap.first != cursor + 1 or gap.last < cursor:
            return f"gap {gap} after {cursor}"
        lives = [one for one in range(cursor, gap.last) if not self._is_gone(topic, one)]
        if lives:
            return f"{gap} has {lives}, which live"
        # A write may tell of jobs that were done since it read the lease log: `Topics._lose` judges what it tells.
        told = max(topic.evicted_at(), topic.leases.told if topic.leases is not None else 0)
        if cursor < told or any(self._is_lost(topic, one) for one in range(gap.last)):
            return ""
        return f"{gap}, and nothing was lost"

    def _is_lost(self, topic: TopicLog, offset: int) -> bool:
        """Whether a reader must learn of a record: a cap took it, or its time was over for a worker or is now."""
        how = topic.leases.done.get(offset, ("", 0))[0] if topic.leases is not None else ""
        return how in TOLD or topic.is_gone(offset) == LOST or self._may_be_expired(topic, offset)

    def _delivered(self, topic: TopicLog, request: DiffRequest, page: DiffPage, begin: int) -> str:
        start = self._running.start
        own = any(config.dedupe_node for config in topic.configs_since(start))
        got = {record.offset: record for record in page.records}
        if sorted(got) != [record.offset for record in page.records] or not begin <= page.next_seq <= page.head_seq:
            return f"order {list(got)} next={page.next_seq} begin={begin}"
        for offset in range(begin, page.next_seq):
            record = got.pop(offset, None)
            if record is None:
                how = topic.is_gone(offset)
                if how not in (DELETED, "done") and not (own and topic.records[offset].node in request.nodes):
                    return f"{offset} is left out: {how or 'it lives'}"
            elif record != topic.records[offset]:
                return f"{record}, is {topic.records[offset]}"
            elif topic.is_gone(offset, start):
                return f"{offset} was {topic.is_gone(offset, start)} before"
        if got:
            return f"{list(got)} are not in {begin}..{page.next_seq}"
        return "" if page.records or page.next_seq > request.from_seq or page.caught_up or page.gap else "no progress"

    def view(self, answer: TopicView) -> None:
        """The state of a topic."""

        def check(log: LogModel) -> str:
            start, topic = self._running.start, log.topic
            view = log.at(start)
            if not (view.next_offset if view else 0) <= answer.head_seq <= log.now.next_offset:
                return f"head {answer.head_seq}"
            if answer.config not in topic.configs_since(start):
                return f"config {answer.config}"
            least = sum(not self._is_gone(topic, offset) for offset in range(view.next_offset if view else 0))
            most = sum(not topic.is_gone(offset, start) for offset in range(log.now.next_offset))
            if not least <= answer.live <= most:
                return f"live {answer.live} is not in {least}..{most}"
            counts = answer.queue
            if counts is not None and not 0 <= counts.ready + counts.in_flight <= log.now.next_offset:
                return f"{counts}"
            return ""

        self._any("reads see what was acknowledged", check)

    # Queues.

    def _told(self) -> list[Any]:
        return self._model.topics.queues.told.get(self._running.op.id, [])

    def claimed(self, request: ClaimRequest, answer: Claimed) -> None:
        """Jobs that were leased are leased to this worker; if there are none, there was a moment without any."""
        law = self._law("a claim's jobs are leased")
        hands = {
            offset: (one.id, one.until)
            for event in self._all_events()
            for one in (
                event.hands if isinstance(event, events.Deal) else [event] if isinstance(event, events.Claim) else []
            )
            if one.id.partition(".")[0] == str(self._running.op.id)
            for first, end in zip(one.jobs[::2], one.jobs[1::2], strict=True)
            for offset in range(first, end)
        }

        extended = [
            (range(first, end), event.until)
            for event in self._all_events()
            if isinstance(event, events.Extend) and event.node == request.node
            for first, end in zip(event.jobs[::2], event.jobs[1::2], strict=True)
        ]
        for job in answer.jobs:
            offset = job.record.offset
            claim, until = hands.get(offset, ("", 0))
            right = any(log.topic.records[offset : offset + 1] == [job.record] for log in self._logs())
            # A share that another process has dealt is told as it is: by then, its worker may have asked for longer.
            ends = {until, *(one for jobs, one in extended if offset in jobs)}
            if not right or lease_id(claim, offset) != job.lease_id or job.deadline_ms not in ends:
                self._fails(law, f"{job}, is {claim} {until}")
        if not answer.jobs and not answer.dead:
            self._any("a claim finds what is there", self._idle)

    def _all_events(self) -> list[Any]:
        return [event for told in self._model.topics.queues.told.values() for event in told]

    def _idle(self, log: LogModel) -> str:
        """Returns fresh jobs that were there during the whole call. A member of a claim window that comes too late to its
        deal gets none.
        """
        topic: TopicLog = log.topic
        if topic.leases is None or any(one.ttl_ms or one.claim_jitter_ms for one in topic.configs_since(0)):
            return ""
        view = log.at(self._running.start)
        known = range(topic.leases.cursor, view.next_offset if view is not None else 0)
        idle = [offset for offset in known if not topic.is_gone(offset)]
        return f"{idle} were there" if idle else ""

    def settled(self, verb: str, request: SettleRequest, answer: Settled) -> None:
        """What is said to be done was done by this request; what is skipped was not held all the time."""
        law = self._law("acknowledged is written")
        kinds = {"ack": events.Ack, "nack": events.Nack, "extend": events.Extend}
        done = {
            offset + 1
            for event in self._told()
            if isinstance(event, kinds[verb]) and event.node == request.node
            for first, end in zip(event.jobs[::2], event.jobs[1::2], strict=True)
            for offset in range(first, end)
        }
        if not set(answer.done) <= done or set(answer.done) & set(answer.skipped):
            self._fails(law, f"{answer}, is {done}")
        if set(answer.done) | set(answer.skipped) != set(request.seqs):
            self._fails(law, f"{answer} to {request}")
        self._any(
            "a job is skipped only if the worker does not hold it", lambda log: self._skipped(log, request, answer)
        )

    def _skipped(self, log: LogModel, request: SettleRequest, answer: Settled) -> str:
        queue = log.topic.leases
        if queue is None:
            return "no queue"
        ids = dict(zip(request.seqs, request.lease_ids, strict=True)) if request.lease_ids else {}
        for seq in answer.skipped:
            lease = queue.held.get(seq - 1)
            if lease is None or lease.node != request.node or queue.touched.get(seq - 1, 0) > self._running.start:
                continue
            if log.topic.is_gone(seq - 1):
                continue  # a cap takes jobs that are leased, too
            is_asked = ids.get(seq, lease_id(lease.claim, seq - 1)) == lease_id(lease.claim, seq - 1)
            latest = max(self._world.latest_ms, queue.time_ms)
            if is_asked and lease.until >= latest:
                return f"{seq} is held: {lease}"
        return ""

    # Refusals.

    def refused(self, exc: Exception) -> None:
        """A call failed: it must say why truly, and what it says was not written must never be."""
        running, model = self._running, self._model
        match exc:
            case OutcomeUnknown():
                return
            case Damaged():
                self._law("no damage")
                if not any(log.log_id in str(exc) and log.purgeable for log in model.logs.values()):
                    self._fails("no damage", repr(exc))
            case HeadraceError() | StoreError():
                effects = model.topics.effects[running.op.id]
                if running.kind in _WRITES:
                    self._world.judge.never[running.op.id] = repr(exc)
                    self._law("refused is not written")
                    if effects or self._told():
                        self._fails("refused is not written", f"told {exc!r}, and written: {effects} {self._told()}")
                if isinstance(exc, HeadraceError):
                    self._justified(exc)
            case _:
                self._fails("no unexpected error", repr(exc))

    def _justified(self, exc: HeadraceError) -> None:
        law, start = self._law("refusals are true"), self._running.start
        logs = self._model.candidates(self._name, start)
        right = True
        match exc:
            case LimitReached():
                right = self._is_limited(exc.detail["limit"])
            case Overloaded():
                pass
            case NotFound():
                existed = self._model.existed(self._name, start)
                right = existed is None or bool(existed.now.ended)
            case NotEmpty():
                right = len(logs) > 1 or any(
                    not one.topic.is_gone(offset, start) for one in logs for offset in range(one.now.next_offset)
                )
            case Conflict():
                right = any(one.topic.config.type != "queue" for one in logs)
            case TopicFull():
                right = any(map(self._is_full, logs)) or bool(self._running.request.create)
        if not right:
            self._fails(law, f"told {exc!r}, which was never so during the call")

    def _is_limited(self, limit: object) -> bool:
        """Whether a limit of all topics was reached. What queues hold is known by shares of marks."""
        limits, request = self._world.limits, self._running.request
        if limit == "max_topics":
            return limits.most_topics == FEW_TOPICS
        if any(log.topic.leases is not None or not log.topic.exact for log in self._logs()):
            return True
        size = sum(map(size_of, request.records.records(0)))
        return not limits.had_room(size, self._running.start)

    def _is_full(self, log: LogModel) -> bool:
        topic, request = log.topic, self._running.request
        most = [one for one in range(log.now.next_offset) if not topic.is_gone(one, self._running.start)]
        for config in topic.configs_since(self._running.start):
            if config.discard != "reject":
                continue
            if 0 < config.cap_records < len(most) + len(request.records) or config.cap_bytes:
                return True
        return False
