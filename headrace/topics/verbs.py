"""The verbs of topics as one object. They read what is to be decided on, and leave what to do to the rules beside."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from headrace.batch import Record
from headrace.clock import Bounded, Threads
from headrace.errors import Damaged, HeadraceError, InvalidRequest, OutcomeUnknown, StoreError
from headrace.log.logs import Log
from headrace.log.requests import Head, RecordsPage
from headrace.log.seam import Look
from headrace.log.stores import Stores
from headrace.tables.catalog import Row
from headrace.topics import diff, live, retention
from headrace.topics.configure import FirstWrite, PutRequest, decide_first_write, decide_put, normalized
from headrace.topics.decide import SURFACE, EraseRequest, TopicSurface, decide_erase
from headrace.topics.erase import victims_of
from headrace.topics.errors import BatchTooLarge, NotEmpty, Routed, TopicNotFound
from headrace.topics.priority import effective_priority
from headrace.topics.removed import Offsets
from headrace.topics.runs import NONE, Runs
from headrace.topics.values import (
    MAX_CLAIM,
    Configured,
    DiffPage,
    DiffRequest,
    Erased,
    Extent,
    Match,
    QueueCounts,
    TopicConfig,
    TopicView,
    WriteRequest,
    Written,
    check_name,
    topic_of,
)
from headrace.wal.state import LogState, incarnation_of

TOUCH_MS = 15_000  # a read clock is written at most so often by one process
_TRIES = 4  # a topic may be deleted and created between two looks
_EXAMINED = 50_000  # records that one diff looks at, most of which its reader may not get
_TIMES = 100_000  # append times of records, which never change
_TOUCHED = 10_000


class Hidden(NamedTuple):
    """What a queue knows of its jobs.

    Attributes:
        runs: those that are done, so that no reader gets them.
        counts: counts the others.
        lapsed: the offset after the last one that was lost to a cap or the TTL, of which readers must learn.
    """

    runs: Runs = NONE
    counts: Callable[[LogState], QueueCounts] | None = None
    lapsed: int = 0


class Topics(Log):
    """The operations on topics, each by the topic's name. Methods block, may be called by any thread, and raise the errors
    of `Log` and of `headrace.topics.errors`.
    """

    def __init__(self, stores: Stores, surface: TopicSurface = SURFACE) -> None:
        """Creates the verbs."""
        super().__init__(stores, surface)
        self._topics = surface
        self._times: Bounded[tuple[str, int, int], int] = Bounded(_TIMES)
        self._touched: Bounded[str, int] = Bounded(_TOUCHED)
        self._threads = Threads(16, "topics")

    def _hidden(self, name: str, head: Head) -> Hidden:  # noqa: ARG002
        """Returns what a queue knows of its jobs; nothing of a log."""
        return Hidden()

    def _oldest_wait_ms(self, name: str, look: Look) -> int | None:  # noqa: ARG002
        """Returns what `oldest_wait_ms` does, of a queue."""
        return None

    # What changes topics.

    def put(self, name: str, config: TopicConfig, *, limit: int = 0) -> Configured:
        """Creates a topic, or replaces its configuration. `limit` is how many topics there may be, 0 for any number.

        Raises:
            Incompatible: the topic has another type.
            LimitReached: there are as many topics as may be.
        """
        check_name(name)
        wanted = normalized(name, config)
        if self._context.pictures.warm(name) is not None:
            with suppress(TopicNotFound):
                if topic_of(self.head(name).state).config == wanted:
                    return Configured(False, wanted)
        return self._configure(PutRequest(name, config, limit))

    def _configure(self, request: PutRequest) -> Configured:
        name, decide = request.name, partial(decide_put, self._topics)
        configured: Configured = self.control(name, lambda controls: controls.find_any(name), decide, request)
        return configured

    def append(self, name: str, request: WriteRequest, *, limit: int = 0) -> Written:
        """Appends records, all or none. If the topic does not exist and the request allows it, the same commit creates it.

        Raises:
            TopicNotFound: the topic does not exist, and the request does not create it.
            TopicFull: the topic has no room, and discards nothing.
            LimitReached: there are as many topics as `limit` says (0 for any number).
        """
        may_create = request.config.auto_create if request.create is None else request.create
        for _ in range(_TRIES):
            try:
                ticket = self.appender.append(name, request)
            except TopicNotFound:
                if not may_create:
                    raise
                check_name(name)
            else:
                written: Written = ticket.result()
                return written._replace(tries=ticket.tries)
            first = FirstWrite(name, request, limit)
            created: Written | None = self.control(
                name, lambda controls: controls.find_any(name), decide_first_write, first
            )
            if created is not None:
                return created
        raise TopicNotFound(name)

    def erase(
        self, name: str, before_seq: int | None, match: Match | None, seqs: Sequence[int] | None = None
    ) -> Erased:
        """Deletes the records that exist now, have seqs below `before_seq` and among `seqs`, and match. None is no
        condition.

        Raises:
            InvalidRequest: there is no condition.
            BatchTooLarge: there are too many seqs.
            OutcomeUnknown: as in an append; also if some were deleted before another error came. Then it may be repeated,
                and deletes and counts the rest.
        """
        if before_seq is None and match is None and seqs is None:
            raise InvalidRequest("before_seq, match or seqs is required")
        if seqs is not None and len(seqs) > MAX_CLAIM:
            raise BatchTooLarge(f"too many seqs: limit={MAX_CLAIM} received={len(seqs)}")
        with self.in_time():
            head = self.head(name)
            end = head.state.next_offset
            if before_seq is not None:
                end = min(end, max(before_seq - 1, 0))
            deleted, answer = 0, None
            parts = self._victims(head, match, end, seqs)
            try:
                for answer in chain.from_iterable(self._erase(name, part) for part in parts):
                    deleted += answer.deleted
            except Damaged:
                raise
            except (HeadraceError, StoreError) as exc:
                if deleted:  # most errors say that nothing was written
                    raise OutcomeUnknown() from exc
                raise
            assert answer is not None, "there is one part at least"
            return answer._replace(deleted=deleted)

    def _victims(
        self, head: Head, match: Match | None, end: int, seqs: Sequence[int] | None
    ) -> Iterator[EraseRequest]:
        """Yields the parts of a delete; an empty one if there is nothing to delete."""
        parts = victims_of(self, head, match, end, None if seqs is None else (seq - 1 for seq in seqs))
        yield next(parts, EraseRequest(head, NONE, lambda *_: 0))
        yield from parts

    def _erase(self, name: str, request: EraseRequest) -> Iterator[Erased]:
        """Deletes a part, perhaps by several commits. Yields what each of them deleted."""
        yield self.control(name, lambda controls: controls.find_living(name), decide_erase, request)

    def remove(self, name: str, *, if_empty: bool = False) -> bool:
        """Deletes a topic with all its records. Returns False if there is none.

        Raises:
            NotEmpty: it must be empty and is not.
            Routed: a router copies from it or into it.
        """
        with self._turns(self._context.groups.in_use(name)), suppress(TopicNotFound):
            with self.in_time():
                head = self.head(name) if if_empty else None
                shown = self._show(name, head, None) if head is not None else None

            def check(looks: Sequence[Look | None]) -> None:
                look = looks[0]
                assert look is not None, "it was found"
                if head is not None and shown is not None:
                    is_other = (look.log_id, look.state.next_offset) != (head.log_id, head.state.next_offset)
                    if shown.live or is_other:  # what was appended since is there, too
                        raise NotEmpty(f'topic "{name}" is not empty')
                if look.state.followers or topic_of(look.state).fed_by:
                    raise Routed(f'topic "{name}" has routers')

            return self.controls.delete(name, check)
        return False

    # What reads topics.

    def view(self, name: str, *, touch: bool = True) -> TopicView:
        """Returns the state of a topic. With `touch`, its priority counts it as read now."""
        with self.in_time():
            head = self.head(name)
            read_ms = self._stores.sessions.clocks([head.log_id]).get(head.log_id)
            if touch:
                self._touch(head.log_id)
            return self._show(name, head, read_ms, is_read=touch)

    def topics(
        self, prefixes: Sequence[str] = ("",), *, after: str = "", limit: int, touch: bool = False
    ) -> tuple[list[TopicView], str | None]:
        """Returns at most `limit` topics whose names begin with one of `prefixes` and come after `after`, in the order of
        their names; and the name after which more follow, None if none do. What has expired counts until a mark ends.
        With `touch`, their priorities count them as read now.
        """
        with self.in_time():
            least = {one for one in prefixes if not any(one != other and one.startswith(other) for other in prefixes)}
            found = [self.list(after=after, prefix=prefix, limit=limit + 1) for prefix in sorted(least)]
            rows = list(islice(heapq.merge(*found, key=lambda row: row.name.encode()), limit + 1))
            more = rows[limit - 1].name if len(rows) > limit else None
            rows = rows[:limit]
            clocks = self._stores.sessions.clocks(row.log_id for row in rows)

            def show(row: Row, head: Head) -> TopicView:
                is_other = head.log_id != row.log_id
                read_ms = (self._stores.sessions.clocks([head.log_id]) if is_other else clocks).get(head.log_id)
                if touch:
                    self._touch(head.log_id)
                return self._show(row.name, head, read_ms, is_read=touch, is_exact=False)

            views = self._threads.map(lambda row: self.listed(row, partial(show, row)), rows)
            return [view for view in views if view is not None], more

    def _show(
        self, name: str, head: Head, read_ms: int | None, *, is_read: bool = False, is_exact: bool = True
    ) -> TopicView:
        now_ms = self._stores.clock.now_ms()
        hidden = self._hidden(name, head)
        state = self._living(head, hidden.runs, now_ms, wanted=0 if is_exact else head.state.next_offset)
        topic = topic_of(state)
        removed = live.removed_of(head.log_id, state, self._context)
        count, size = retention.counted(state, removed, hidden.runs)
        floor = (
            min(removed().union(hidden.runs).live_at(state.floor), state.next_offset) if hidden.runs else state.floor
        )
        return TopicView(
            name=name,
            config=topic.config,
            head_seq=state.next_offset,
            earliest_seq=floor + 1,
            live=count,
            bytes=size,
            effective_priority=effective_priority(topic.config, now_ms if is_read else read_ms, now_ms),
            last_write_ts=state.append_time_ms or None,
            last_read_ts=read_ms,
            queue=hidden.counts(state) if hidden.counts is not None else None,
        )

    def diff(self, name: str, request: DiffRequest, *, touch: bool = True) -> DiffPage:
        """Returns the records after a cursor, as many as fit into the page; at least one if the reader gets any. Without
        `touch`, priorities count the topic as read now only if there are any.
        """
        with self.in_time():
            page = self.records(name, request.from_seq, max_records=request.limit, max_bytes=request.max_bytes)
            head = page.head
            self._remember(page)
            cursor, incarnation = diff.resume(request, head), incarnation_of(head.config, head.state)
            state, gone = self._readable(name, head, cursor + 1)
            begin = diff.plan(cursor, head.state, state, gone)
            stop = diff.next_void(begin.start, state)
            records, position, examined = self._collect(page, begin.start, stop, gone, request)
            if touch or records:
                self._touch(head.log_id)
            earliest = min(gone.live_at(state.floor), page.end)
            return DiffPage(records, position, page.end, earliest + 1, begin.gap, examined, incarnation)

    def diffs(self, requests: Sequence[tuple[str, DiffRequest]]) -> list[DiffPage | Exception]:
        """Returns what `diff` returns or raises for each of some topics, read at the same time and without `touch`."""

        def read(one: tuple[str, DiffRequest]) -> DiffPage | Exception:
            try:
                return self.diff(*one, touch=False)
            except (HeadraceError, StoreError) as exc:
                return exc

        return self._threads.map(read, requests)

    def extents(self, names: Sequence[str]) -> list[Extent | None]:
        """Returns which seqs each of some topics has, None if there is no such topic. Costs a query each."""

        def show(name: str) -> Extent | None:
            with suppress(TopicNotFound):
                head = self.head(name)
                end = head.state.next_offset
                state, gone = self._readable(name, head, end)
                incarnation = incarnation_of(head.config, head.state)
                return Extent(min(gone.live_at(state.floor), end) + 1, end, incarnation)
            return None

        with self.in_time():
            return self._threads.map(show, names)

    def _readable(self, name: str, head: Head, wanted: int) -> tuple[LogState, Offsets]:
        """Returns a topic's state without what has expired, as `live.expire` does; and what no reader gets above its
        floor.
        """
        hidden = self._hidden(name, head)
        state = self._living(head, hidden.runs, self._stores.clock.now_ms(), wanted=wanted)
        gone = live.removed_of(head.log_id, state, self._context)().union(hidden.runs)
        return retention.lapse(state, min(hidden.lapsed, gone.live_at(state.floor))), gone

    def oldest_wait_ms(self, name: str) -> int | None:
        """Returns the age of the oldest live job that was never delivered (ms). The caller has just appended to the queue.
        None if there is none, the topic is no queue, a store fails, or this process looked within a fifth of the seal age.
        Costs one query, and a read of that job if it is another one than before.
        """
        picture = self._context.pictures.warm(name)
        if picture is None or topic_of(picture.state).config.type != "queue":
            return None
        return self._oldest_wait_ms(name, self._context.look_at(picture))

    def gone(self, name: str, head: Head) -> Runs:
        """Returns the records that no reader gets any more: deleted, lost to a cap or the TTL or, in a queue, done."""
        hidden = self._hidden(name, head).runs
        state = self._living(head, hidden, self._stores.clock.now_ms(), wanted=0)
        return self.removed(head._replace(state=state)).union(hidden).add(0, state.floor)

    def removed(self, head: Head) -> Runs:
        """Returns the deleted records above a topic's floor, at the moment that `head` describes. Reads all their pages."""
        return live.removed_of(head.log_id, head.state, self._context)().within(
            head.state.floor, head.state.next_offset
        )

    def _collect(
        self, page: RecordsPage, position: int, stop: int, gone: Offsets, request: DiffRequest
    ) -> tuple[list[Record], int, int]:
        """Returns the records that a reader gets from a position on and before `stop`, the cursor after them, and how many
        were looked at.

        Args:
            page: records that were read already, perhaps those at the position.
        """
        own, row = diff.own_nodes(request, page.head.state), Row(page.head.log_id, page.head.config)
        records: list[Record] = []
        examined, room_bytes = 0, request.max_bytes
        found = page.records if page.records and page.records[0].offset <= position < page.next else []
        while position < stop:
            room = request.limit - len(records)
            if not found:
                # As far as the page can take records if the reader gets all that live; further, if many were its own.
                wanted = max(room, examined)
                through = min(gone.live_at(position, wanted - 1) + 1, position + 2 * max(request.limit, wanted), stop)
                found = self._context.page(row, position, through - position, request.max_bytes)
                if not found or found[0].offset > position:
                    break  # they were dropped since the state was read: the next page begins with their gap
            found = found[: stop - found[0].offset]
            there = gone.within(position, found[-1].offset + 1)
            taken = diff.take(found, position, there, own, room, room_bytes)
            records += taken.records
            examined += taken.examined
            room_bytes -= taken.size
            position, found = min(gone.live_at(taken.next), stop), []
            if taken.is_full or examined >= _EXAMINED:
                break
        return records, position, examined

    def _living(self, head: Head, hidden: Runs, now_ms: int, *, wanted: int) -> LogState:
        """Returns a topic's state without the records that have expired, as `live.expire` does."""
        removed = live.removed_of(head.log_id, head.state, self._context)
        return live.expire(head.state, now_ms, partial(self._time_of, head), removed, lambda: hidden, wanted)

    def _time_of(self, head: Head, offset: int) -> int:
        def read() -> int:
            return live.times_of(Row(head.log_id, head.config), self._context)(offset)

        return self._times.load((head.log_id, head.incarnation, offset), read)

    def _remember(self, page: RecordsPage) -> None:
        """Keeps append times that a TTL asks for."""
        if topic_of(page.head.state).config.ttl_ms:
            for record in page.records:
                self._times.put((page.head.log_id, page.head.incarnation, record.offset), record.time_ms)

    def _touch(self, log_id: str) -> None:
        """Records that a topic was read, unless this process did so a moment ago. A failure costs only priority."""
        now_ms = self._stores.clock.now_ms()
        if now_ms - (self._touched.get(log_id) or 0) >= TOUCH_MS:
            self._touched.put(log_id, now_ms)
            with suppress(StoreError, HeadraceError):
                self._stores.sessions.touch(log_id, now_ms)
