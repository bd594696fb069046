"""The verbs of topics and queues as one object: those of topics, and what workers ask of queues."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import NamedTuple

from headrace.clock import Bounded, within_deadline
from headrace.errors import HeadraceError, InvalidRequest, LimitReached, Overloaded, StoreError
from headrace.log.commit import Found
from headrace.log.context import Sized, Ticket
from headrace.log.control import Controls
from headrace.log.requests import Head
from headrace.log.seam import Look
from headrace.log.stores import Stores
from headrace.queues.cohort import Waiting
from headrace.queues.configure import Configuring, find_queue
from headrace.queues.dead_letter import PAUSE_MS, Burial, Buried, Vain
from headrace.queues.decide import Claim, Dealing, Joined, Release, Settle, Taken
from headrace.queues.events import lease_id
from headrace.queues.forget import Forgetting
from headrace.queues.ledger import bring_up, lapsed_of, lost_since
from headrace.queues.projection import Projection, advance, before
from headrace.queues.remove import Removal
from headrace.queues.surface import QueueSurface
from headrace.queues.values import Claimed, ClaimRequest, Lease, Settled, SettleRequest
from headrace.tables.catalog import Row
from headrace.topics import retention
from headrace.topics.configure import PutRequest
from headrace.topics.decide import EraseRequest
from headrace.topics.errors import BatchTooLarge, NotAQueue, TopicNotFound
from headrace.topics.runs import NONE, Runs
from headrace.topics.values import LEASES, MAX_CLAIM, Configured, Erased, QueueCounts, topic_of
from headrace.topics.verbs import Hidden, Topics
from headrace.wal.state import LogState

_log = logging.getLogger(__name__)

_ERASED_RUNS = 10_000  # of jobs in one event: some 160 KB
_WAIT_LOOK_MS = 1_000  # an append to a queue is late by at most so much
_REMEMBERED = 4096  # queues of one process
_LOOKS = 16  # at a window that is open yet, though this process has waited for its end: clocks differ


class Window(NamedTuple):
    """A claim window that a claim has joined.

    Attributes:
        wait_ms: how long to wait before the jobs are asked for.
        looks: how often they may be asked for; clocks differ.
    """

    joined: Joined
    wait_ms: int
    looks: int


class Queues(Topics):
    """The operations on topics and queues, each by name. Methods block, and may be called by any thread.

    All that workers ask raises TopicNotFound or NotAQueue if there is no queue with this name, and Overloaded if others
    keep changing it; then nothing was written.
    """

    def __init__(self, stores: Stores) -> None:
        """Creates the verbs."""
        self._queues = QueueSurface(self._find_leases)
        super().__init__(stores, self._queues)
        self._waits_looked_at: Bounded[str, int] = Bounded(_REMEMBERED)
        self._vain: Bounded[str, Vain] = Bounded(_REMEMBERED)

    # What workers ask.

    def claim(self, name: str, request: ClaimRequest) -> Claimed:
        """Leases jobs to a worker: those that were given back first, then fresh ones. Jobs that were delivered as often as
        they may be move to the dead-letter topic instead. Waits for the queue's claim window, if it has one.
        """
        outcome = self.begin_claim(name, request)
        while isinstance(outcome, Window):
            self._stores.clock.sleep(outcome.wait_ms / 1000)
            outcome = self.end_claim(name, request, outcome)
        return outcome

    def begin_claim(self, name: str, request: ClaimRequest) -> Claimed | Window:
        """Claims as `claim` does, but does not wait: returns the claim window that was joined, if the queue has one. After
        `wait_ms` the caller must call `end_claim`, and so on until it returns the jobs. A stream that finds nothing joins
        no window.
        """
        with self.in_time():
            claim = self._prefetch(name, request)
            if claim.is_fresh and not claim.records and self._is_idle(name, is_stream=bool(request.connection)):
                return Claimed([], 0)
        ticket = self._ask(name, claim)
        answer: Taken | Joined = ticket.answer
        if isinstance(answer, Joined):
            return Window(answer, max(1, answer.closes_ms - self._stores.clock.now_ms()), _LOOKS)
        return self._claimed(name, answer, ticket.tries)

    def end_claim(self, name: str, request: ClaimRequest, window: Window) -> Claimed | Window:
        """Returns the worker's share of a claim window; the window to wait for again if it is still open. Raises Overloaded
        if it does not end.
        """
        with self.in_time():
            claim = self._prefetch(name, request)
        ticket = self._ask(name, Dealing(claim, window.joined))
        answer: Taken | Waiting = ticket.answer
        if isinstance(answer, Taken):
            return self._claimed(name, answer, ticket.tries)
        if window.looks == 1:
            raise Overloaded("the claim window does not end by this server's clock")
        return Window(window.joined, max(1, answer.ms), window.looks - 1)

    def ack(self, name: str, request: SettleRequest) -> Settled:
        """Removes jobs that the worker holds, for good. Others are skipped."""
        settled = self._settle(name, Settle("ack", request))
        if self._queues.behind.pop(name) is not None:
            self._forget_done(name)
        return settled

    def nack(self, name: str, request: SettleRequest) -> Settled:
        """Gives back jobs that the worker holds; after `delay_ms` they can be claimed again. Others are skipped."""
        return self._settle(name, Settle("nack", request))

    def extend(self, name: str, request: SettleRequest) -> Settled:
        """Sets the deadlines of jobs that the worker holds to `lease_ms` from now. Others are skipped."""
        return self._settle(name, Settle("extend", request))

    def release(self, name: str, node: str, connection: str) -> int:
        """Gives back the jobs that a worker holds by one connection. Returns how many."""
        released: int = self._ask(name, Release(node, connection)).answer
        return released

    def leases(self, name: str, node: str | None = None, limit: int | None = None) -> list[Lease]:
        """Returns at most `limit` of the leases that a worker, or any worker, holds now: those that end first, then by seq.
        Costs one query.
        """
        with self.in_time():
            now = self._now(name)
        grants = sorted(
            now.grants if node is None else now.held(node), key=lambda one: (one.until_ms, one.jobs.first)
        )
        leases = (
            Lease(
                offset + 1,
                lease_id(grant.id, offset),
                grant.until_ms,
                grant.connection,
                grant.node,
                grant.deliveries,
                grant.claimed_ms,
            )
            for grant in grants
            for first, end in grant.jobs
            for offset in range(first, end)
        )
        return list(islice(leases, limit))

    def _oldest_wait_ms(self, name: str, look: Look) -> int | None:
        now_ms = self._stores.clock.now_ms()
        if now_ms - (self._waits_looked_at.get(name) or 0) < self._stores.settings.seal_age_ms // 5:
            return None
        self._waits_looked_at.put(name, now_ms)
        with suppress(HeadraceError, StoreError), within_deadline(_WAIT_LOOK_MS):
            now = self._at(look, self._leases_of(name, look))
            head = Head(look.log_id, look.config, look.state, None)
            state = self._living(head, now.hidden, now_ms, wanted=0)
            oldest = now.done.live_at(max(now.cursor, state.floor))
            time_ms = self._time_of(head, oldest) if oldest < state.next_offset else 0  # also 0: dropped meanwhile
            return max(0, now_ms - time_ms) if time_ms else None
        return None

    # How they are asked.

    def _settle(self, name: str, settle: Settle) -> Settled:
        """Checks an ack, nack or extend, and commits it. Raises BatchTooLarge or InvalidRequest."""
        request = settle.request
        if len(request.seqs) > MAX_CLAIM:
            raise BatchTooLarge(f"too many seqs: limit={MAX_CLAIM} received={len(request.seqs)}")
        if request.lease_ids is not None and len(request.lease_ids) != len(request.seqs):
            raise InvalidRequest(
                f"lease_ids must have one for each seq: seqs={len(request.seqs)} received={len(request.lease_ids)}"
            )
        ticket = self._ask(name, settle)
        settled: Settled = ticket.answer
        return settled._replace(tries=ticket.tries)

    def _ask(self, name: str, request: Sized) -> Ticket:
        """Commits a request to the lease log, perhaps with others of this process, and returns it with its answer."""
        with self.of_queue(name):
            return self.appender.append((name, LEASES), request)

    @contextmanager
    def of_queue(self, name: str) -> Iterator[None]:
        """Returns a context in which the error that there is no lease log becomes NotAQueue if there is a topic with this
        name that is none.
        """
        try:
            yield
        except TopicNotFound:
            head = self.head(name)  # it raises the same error if there is none
            if topic_of(head.state).config.type != "queue":
                raise NotAQueue(name) from None
            raise

    def _prefetch(self, name: str, request: ClaimRequest) -> Claim:
        """Prepares a claim. If, as far as this process knows, the queue has fewer fresh jobs than are asked for, this reads
        the end of the jobs log with these jobs, so that the claim sees every job that was written before it. So it does
        for a queue that discards old jobs: a claim on an older picture would lease those that a cap has taken since.
        """
        cursor, picture = self._queues.cursors.get(name), self._context.pictures.warm(name)
        if picture is None:
            return Claim(request)
        is_discarding = retention.is_discarding(topic_of(picture.state).config)
        if not is_discarding and (cursor is None or picture.state.next_offset - cursor >= request.max):
            return Claim(request)
        position = cursor if cursor is not None else picture.state.floor
        page = self.records(name, position, max_records=request.max, max_bytes=request.max_bytes)
        return Claim(request, page.records, (page.head.log_id, page.head.incarnation), is_fresh=True)

    def _is_idle(self, name: str, *, is_stream: bool) -> bool:
        """Returns whether a queue whose jobs log was just read has nothing to claim or move; costs one query. A request
        waits for the claim window all the same; a stream, which asks again and again, would write all the time.
        """
        jobs = self._context.pictures.warm(name)
        if jobs is None or (topic_of(jobs.state).config.claim_jitter_ms and not is_stream):
            return False
        look = self._context.look_at(jobs)
        now = self._at(look, self._leases_of(name, look))
        return not now.counts(jobs.state.next_offset).ready

    def _claimed(self, name: str, taken: Taken, tries: int) -> Claimed:
        """Returns the answer to a claim, after the jobs that it found to be dead were moved."""
        dead = self._bury(name, taken.dead_letter) if taken.dead_letter is not None else 0
        return taken.claimed._replace(dead=dead, tries=tries)

    def _bury(self, name: str, topic: str) -> int:
        """Moves jobs to the dead-letter topic. Returns how many; a failure leaves them for a later claim. After a try in
        vain it does nothing for a while.
        """
        vain, now_ms = self._vain.get(name) or Vain(0, 0), self._stores.clock.now_ms()
        if now_ms < vain.until_ms:
            return 0
        burial = Burial(self._queues, self._queues.points, self._stores.settings.max_topics, vain.end)

        def find(controls: Controls) -> Found:
            queue, dead = controls.find_living((name, LEASES), name), controls.find_any(topic)
            return Found((*queue.pictures, *dead.pictures), min(queue.read, dead.read))

        def bury() -> Buried:
            buried: Buried = self.control((name, LEASES), find, burial.decide, topic, name, topic)
            return buried

        try:
            try:
                buried = bury()
            except LimitReached:  # of bytes: one may fit
                burial.is_alone = True
                buried = bury()
        except (HeadraceError, StoreError) as exc:
            _log.warning("jobs wait for the dead-letter topic: queue=%s topic=%s reason=%r", name, topic, exc)
            self._vain.put(name, Vain(burial.end or vain.end, now_ms + PAUSE_MS))
            return 0
        if buried.end and not buried.moved:
            self._vain.put(name, Vain(buried.end, now_ms + PAUSE_MS))
        return buried.moved

    def _forget_done(self, name: str) -> None:
        """Raises the floor of the jobs log past done jobs; if that fails, a later ack does it."""
        forgetting = Forgetting(self._queues.points)
        try:
            self.control(name, lambda controls: controls.find_living(name, (name, LEASES)), forgetting.decide)
        except (HeadraceError, StoreError) as exc:
            _log.warning("done jobs stay in the jobs log: queue=%s reason=%r", name, exc)

    # What topics ask.

    def _hidden(self, name: str, head: Head) -> Hidden:
        if topic_of(head.state).config.type != "queue":
            return Hidden()
        jobs = Look(Row(head.log_id, head.config), head.state)
        leases = self._leases_of(name, jobs)
        now, lapsed = self._at(jobs, leases), lapsed_of(leases.state, lost_since(self._load(leases), jobs))

        def counts(state: LogState) -> QueueCounts:
            counted = bring_up(now, jobs._replace(state=state), 0).counts(state.next_offset)
            return QueueCounts(counted.ready, counted.in_flight, now.dead)

        return Hidden(now.hidden, counts, lapsed)

    def done(self, jobs: Head, leases: Head) -> Runs:
        """Returns the jobs of a queue that are done, given states of both of its logs."""
        return self._at(Look(Row(jobs.log_id, jobs.config), jobs.state), leases).hidden

    def _at(self, jobs: Look, leases: Head) -> Projection:
        now = bring_up(self._load(leases), jobs, self._stores.clock.now_ms())
        return before(now, jobs.state.next_offset)  # the lease log was read later

    def _configure(self, request: PutRequest) -> Configured:
        if request.config.type != "queue":
            return super()._configure(request)
        name, configuring = request.name, Configuring(self._queues, self._queues.points)
        configured: Configured = self.control(
            name, lambda controls: find_queue(controls, name), configuring.decide, request, (name, LEASES)
        )
        return configured

    def _erase(self, name: str, request: EraseRequest) -> Iterator[Erased]:
        if topic_of(request.found.state).config.type != "queue":
            yield from super()._erase(name, request)
            return
        removal, which = Removal(self._queues.points), (name, LEASES)
        for part in list(request.victims.parts(_ERASED_RUNS)) or [NONE]:
            yield self.control(
                which,
                lambda controls: controls.find_living(which, name),
                removal.decide,
                request._replace(victims=part),
                name,
            )

    # Who holds what.

    def _now(self, name: str) -> Projection:
        """Returns who holds what now; costs one query if nothing is due to be read again."""
        with self.of_queue(name):
            leases = self.head((name, LEASES))
        return advance(self._load(leases), self._stores.clock.now_ms())

    def _load(self, leases: Head) -> Projection:
        return self._queues.points.load(Look(Row(leases.log_id, leases.config), leases.state), self._context)

    def _leases_of(self, name: str, jobs: Look) -> Head:
        """Reads the lease log of a jobs log. Raises TopicNotFound if the name has other logs since that was read."""
        leases, row = self.head((name, LEASES)), jobs.row.log(LEASES)
        if row is None or row.log_id != leases.log_id:
            raise TopicNotFound(name)
        return leases

    def _find_leases(self, jobs: Look) -> Look:
        """Reads the lease log that belongs to a jobs log."""
        row, pictures = jobs.row.log(LEASES), self._context.pictures
        assert row is not None, "a queue has a lease log"
        return self._context.look_at(pictures.look_at(row, pictures.read_time()))
