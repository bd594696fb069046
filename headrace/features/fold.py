"""The folder brings the rows of a lane up to date with its events.

A pass reads the lane's mark, then events from there on, then the rows that they change; it folds, writes each row in place
of the one that it read, and the mark last. A row says which events it has, so a pass that is repeated, or that another one
overtakes, adds none twice: who finds another row than it read gives up, and the next pass begins at the mark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from headrace import jobs
from headrace.batch import Record
from headrace.clock import Bounded, Threads
from headrace.errors import Damaged
from headrace.features.documents import generation_of, read_lane
from headrace.features.events import Entity, Event, Pipelines, read_event
from headrace.features.jobs import PART_ROWS, FoldResult, load_part
from headrace.features.pipeline.tables import Table
from headrace.features.register import Registrations
from headrace.features.rows import decode_row, encode_row, expires_at
from headrace.features.values import lane_of
from headrace.log.requests import At, Head
from headrace.log.seam import Decision, Draft, Ids, Look, Request, Rows, Which
from headrace.objects import ObjectMissing
from headrace.tables import marks
from headrace.tables.features import FeatureRows, Key, StateRow
from headrace.tables.marks import Build, Dropped, Mark, Stop
from headrace.wal.state import incarnation_of

_log = logging.getLogger(__name__)

DROP_MS = 300_000  # a generation goes so long after the last pipeline that names it: readers have pictures ...
DROP_AGAIN_MS = 86_400_000  # ... and again, since a suspended folder may write rows of it
MAX_DIRECT = 2  # tries of one pass that may end without an answer before generations are folded one by one
MAX_ROWS = PART_ROWS  # that are changed between two marks, and an event's more: some seconds of a folder's time
_EVENTS = 20_000  # of one slice
_BYTES = 2 * 1024 * 1024
_WRITTEN = 512  # rows that are in memory, decoded, before they are written
_RETAIN_MS = 3_600_000  # at most so often the floor of a lane rises
_KEPT_BYTES = 192 * 1024 * 1024  # in memory, of rows that one process remembers
_KEPT_FACTOR = 12  # bytes in memory for a stored one
_WRITERS = Threads(8, "fold")


class Pass(NamedTuple):
    """The result of a pass.

    Attributes:
        folded: how far the lane is folded.
        events: how many events this pass has folded.
        is_done: whether nothing was left when it ended.
        due_ms: when a pass is wanted even if no event comes, in epoch milliseconds; 0: never.
        lag_ms: age of the oldest event that it folded, when its rows were written; 0 if there was none.
        stopped: generations that this pass has stopped.
    """

    folded: int
    events: int
    is_done: bool
    due_ms: int = 0
    lag_ms: int = 0
    stopped: tuple[Stop, ...] = ()


class _Kept(NamedTuple):
    """A row as this process wrote it, without its data; `entity` has its state."""

    row: StateRow
    entity: Entity
    size: int


class _Overtaken(Exception):
    """Another folder has written a row, or the mark; or the lane was created again."""


class Folder:
    """Folds lanes. One process may fold several at once, but each by one thread."""

    def __init__(self, registrations: Registrations) -> None:
        self.log = registrations
        self.table: FeatureRows = registrations.rows
        self.clock = registrations.stores.clock
        self._kept: Bounded[Key, _Kept] = Bounded(_KEPT_BYTES, weigh=lambda kept: 500 + kept.size * _KEPT_FACTOR)

    def fold(self, which: Which, until: float, tries: int = 1) -> Pass:
        """Folds events of a lane until there are none left, or `until` (monotonic seconds) has come.

        Args:
            tries: how often this pass was begun, this time included. Above `MAX_DIRECT` folders die of something in it:
                each generation is folded alone then, and the one that they die of is stopped.

        Raises:
            NotFound, Gone: the lane has ended.
        """
        is_done = False
        for _ in range(2):  # what this process remembers of rows may be old: then it is forgotten, and read
            run = _Run(self, which, is_careful=tries > MAX_DIRECT)
            with suppress(_Overtaken):
                is_done = run.fold(until)
                break
        mark = run.mark
        due_ms = min((one.next_ms for one in mark.dropped), default=0)
        new = tuple(one for one in mark.stopped if one not in run.stopped_before)
        return Pass(mark.folded, mark.folded - run.began, is_done, due_ms, run.lag_ms, new)

    def load(self, keys: Sequence[Key], tables: Mapping[str, Table]) -> Iterator[tuple[Key, StateRow | None, Entity]]:
        """Yields rows, without their data, with their states: what this process remembers is not read again. A row that is
        yielded is remembered only after `write`.

        Args:
            tables: the tables by generation.
        """
        kept = {key: one for key in keys if (one := self._kept.pop(key)) is not None}
        stored = self.table.get([key for key in keys if key not in kept])
        for key in keys:
            row = stored.get(key)
            if key in kept:
                yield key, kept[key].row, kept[key].entity
            elif row is None:
                yield key, None, Entity()
            else:
                table = tables[key.generation]
                yield key, row._replace(data=b""), Entity(table, decode_row(table.features, row.data))

    def write(self, changed: Sequence[tuple[StateRow, StateRow | None, Entity]]) -> None:
        """Writes rows, each in place of another, and remembers them with their states. Raises _Overtaken if one of them can
        not be written; others are.
        """
        written = _WRITERS.map(lambda one: self.table.put(one[0], one[1]), changed)
        for (row, _, entity), result in zip(changed, written, strict=True):
            if result is not None:
                self._kept.put(row.key, _Kept(result._replace(data=b""), entity, len(row.data)))
        if None in written:
            raise _Overtaken


class _Run:
    """One pass over a lane.

    Attributes:
        mark: the mark as it is to be; `_written` is the one that the table has.
        began: where the pass began.
        stopped_before: what had stopped by then.
        lag_ms: as in `Pass`.
    """

    def __init__(self, folder: Folder, which: Which, *, is_careful: bool) -> None:
        self._folder = folder
        self._log = folder.log
        self._which = which
        self._is_careful = is_careful
        head = self._log.head(which)
        self._written = folder.table.mark(head.log_id)
        later_ms = self._now_ms() + DROP_MS
        self.mark = marks.begin(self._written, head.log_id, head.incarnation, head.state.floor, later_ms)
        self.began, self.stopped_before, self.lag_ms = self.mark.folded, self.mark.stopped, 0

    def fold(self, until: float) -> bool:
        """Folds slices; returns whether nothing is left. Raises _Overtaken."""
        while True:
            head, end = self._slice(until)
            if self.mark.folded >= end or self._folder.clock.monotonic() >= until:
                break
        is_built = self._build(head, until)
        self._retain(head)
        self._drop()
        return is_built and self.mark.folded >= end

    def _now_ms(self) -> int:
        return self._folder.clock.now_ms()

    def _commit(self, mark: Mark) -> None:
        """Notes a mark, and writes it if it has changed. Raises _Overtaken."""
        self.mark = mark
        before = self._written
        if before is not None and replace(self.mark, version=before.version) == before:
            return
        written = self._folder.table.put_mark(self.mark)
        if written is None:
            raise _Overtaken
        self.mark = self._written = written

    def _slice(self, until: float) -> tuple[Head, int]:
        """Folds the next events, and writes the mark: as often as it takes, or until time is over. Returns the lane as it
        was when they were read, and its end.
        """
        page = self._log.records(self._which, self.mark.folded, max_records=_EVENTS, max_bytes=_BYTES)
        head, records = page.head, page.records
        self._check_lane(head)
        pipelines = self._log.pipelines_of(head, self.mark.folded)
        read, built = (
            {generation_of(one.name, one.generation, head): one for one in tables.values()}
            for tables in (pipelines.last.tables, pipelines.last.building)
        )
        # Before the first rows of a generation, so that none is left behind if the lane ends, or the folder does.
        self._commit(marks.note(self.mark, tuple(read), tuple(built), self._now_ms() + DROP_MS))
        found = {**read, **built}
        while True:
            end = page.next
            if records:
                wanted = {one: found[one] for one in self.mark.generations if not marks.is_stopped(self.mark, one)}
                fold = partial(self._fold, head, records, end, pipelines)
                end = min(self._fold_alone(fold, wanted), default=end) if self._is_careful else fold(wanted)
                self.lag_ms = max(self.lag_ms, self._now_ms() - records[0].time_ms)
            total = self.mark.total_bytes + sum(len(record.data) for record in records if record.offset < end)
            records = [record for record in records if record.offset >= end]
            if not records and page.next >= page.end:
                total = head.state.total_bytes
            self._commit(replace(self.mark, folded=max(end, self.mark.folded), total_bytes=total, trying=""))
            if not records or self._folder.clock.monotonic() >= until:
                return head, page.end

    def _check_lane(self, head: Head) -> None:
        """Raises _Overtaken if the mark is not about this log's offsets: the name has another log, or it was recovered."""
        if (head.log_id, head.incarnation) != (self.mark.log_id, self.mark.incarnation):
            raise _Overtaken

    def _fold_alone(self, fold: Callable[[dict[str, Table]], int], wanted: dict[str, Table]) -> list[int]:
        """Folds the generations one by one, each noted first: one that is noted already has ended a folder. Returns how far
        each is folded.
        """
        ended, ends = self.mark.trying, list[int]()
        if ended in wanted:
            stop = Stop(ended, self.mark.folded, "folders end without a word at its events")
            self.mark = replace(marks.stop(self.mark, stop), trying="")
        for generation, table in wanted.items():
            if generation == ended:
                continue
            self._commit(replace(self.mark, trying=generation))
            ends.append(fold({generation: table}))
        return ends

    def _fold(
        self, head: Head, records: Sequence[Record], end: int, pipelines: Pipelines, wanted: dict[str, Table]
    ) -> int:
        """Folds records, up to an offset, into the rows of some generations, and writes the rows. A generation whose
        features fail stops. Returns how far it came: not to the end, if too many rows change before.
        """
        lane, stops = lane_of(head.config.role), dict[str, Stop]()

        def guarded(generation: str, offset: int, call: Callable[..., Any], *arguments: Any) -> Any:
            try:
                return call(*arguments)
            except Exception as exc:  # noqa: BLE001 - whatever it is, it must stop no other table
                _log.exception("table stops: log_id=%s generation=%s offset=%s", head.log_id, generation, offset)
                stops.setdefault(generation, Stop(generation, offset, f"{type(exc).__name__} at offset {offset}"))
                return None

        found: dict[Key, list[Event]] = {}
        generations = {(table.name, table.generation): generation for generation, table in wanted.items()}
        for record in records:
            if len(found) >= MAX_ROWS:
                end = record.offset
                break
            pipeline = pipelines.at(record.offset)
            row = read_event(pipeline, record.data) if pipeline is not None else None
            if pipeline is None or row is None:
                continue
            for table in pipeline.generations:
                generation = generations.get((table.name, table.generation))
                if generation is None or generation in stops:
                    continue
                placed = guarded(generation, record.offset, table.entity_of, row)
                if placed is not None:
                    key = Key(head.log_id, generation, placed[0])
                    found.setdefault(key, []).append(Event(table, placed[1], record.time_ms, record.offset))
        changed: list[tuple[StateRow, StateRow | None, Entity]] = []

        def write() -> None:
            self._folder.write([one for one in changed if one[0].key.generation not in stops])
            changed.clear()

        for key, before, entity in self._folder.load(list(found), wanted):
            new = [event for event in found[key] if before is None or event.offset >= before.as_of]
            for event in new:
                if key.generation not in stops:
                    guarded(key.generation, event.offset, entity.fold, event, lane)
            if new and key.generation not in stops:
                assert entity.table is not None and entity.state is not None, "an event was folded"
                data = encode_row(entity.table.features, entity.state)
                expiry = expires_at(entity.table, entity.state.stamp_ms)
                changed.append((StateRow(key, end, data, expiry), before, entity))
            if len(changed) >= _WRITTEN:
                write()
        write()
        self.mark = marks.stop(self.mark, *stops.values())
        return end

    # Back-fills.

    def _build(self, head: Head, until: float) -> bool:
        """Goes on with back-fills. Returns whether nothing is left that could be done now. Raises _Overtaken."""
        last = self._log.pipelines_of(head, head.state.next_offset).last
        for name, table in last.building.items():
            generation = generation_of(name, table.generation, head)
            build = next((one for one in self.mark.builds if one.generation == generation), None)
            building = last.document.tables[name].building
            if build is None or building is None or marks.is_stopped(self.mark, generation):
                continue
            if build.folded < 0:
                result = jobs.result(self._log.stores.objects, building.job_id, FoldResult)
                if result is None:
                    continue
                build = self._install(head, build, result, until)
            if marks.is_stopped(self.mark, generation):
                continue
            if build.folded < 0 or not self._catch_up(build, table, until):
                return False
        return True

    def _install(self, head: Head, build: Build, result: FoldResult, until: float) -> Build:
        """Writes rows that a job has computed. One that is there was written by a pass that ended before it was noted."""
        number = lane_of(head.config.role)
        parts = result.parts_of(number)
        for part in parts[build.installed :]:
            if self._folder.clock.monotonic() >= until:
                return build
            try:
                loaded = load_part(self._log.stores.objects, part)
            except (Damaged, ObjectMissing) as exc:
                stop = Stop(build.generation, result.ends[number], f"{type(exc).__name__}: {part.key}")
                self._commit(marks.stop(self.mark, stop))
                return build
            rows = [
                StateRow(Key(head.log_id, build.generation, row.entity), row.as_of, row.data, row.expires_at)
                for row in loaded
            ]
            _WRITERS.map(lambda row: self._folder.table.put(row, None), rows)
            build = replace(build, installed=build.installed + 1)
            self._commit(marks.note_build(self.mark, build))
        build = replace(build, folded=result.ends[number])
        self._commit(marks.note_build(self.mark, build))
        return build

    def _catch_up(self, build: Build, table: Table, until: float) -> bool:
        """Folds the events that others have into a generation that is back-filled. Returns False if time was over first."""
        while build.folded < self.mark.folded and not marks.is_stopped(self.mark, build.generation):
            if self._folder.clock.monotonic() >= until:
                return False
            page = self._log.records(self._which, build.folded, max_records=_EVENTS, max_bytes=_BYTES)
            self._check_lane(page.head)
            end = min(page.next, self.mark.folded)
            records = [one for one in page.records if one.offset < end]
            pipelines = self._log.pipelines_of(page.head, build.folded)
            end = self._fold(page.head, records, end, pipelines, {build.generation: table})
            build = replace(build, folded=end)
            self._commit(marks.note_build(self.mark, build))
        if not marks.is_stopped(self.mark, build.generation):
            self._commit(marks.end_build(self.mark, build))
        return True

    def _retain(self, head: Head) -> None:
        """Lets go of events that are older than their event keeps them, if they are folded, and no back-fill reads them."""
        keep_ms = self._log.pipelines_of(head, head.state.next_offset).last.event.keep_events_ms
        now_ms = self._now_ms()
        if keep_ms is None or now_ms - self.mark.retained_ms < min(_RETAIN_MS, keep_ms // 16):
            return
        page = self._log.read(self._which, At(since_ms=now_ms - keep_ms), max_records=1, touch=False)
        floor = min(page.start, self.mark.folded)

        def decide(looks: Sequence[Look | None], _: Sequence[Request], rows: Rows, __: int, ___: Ids) -> Decision:
            (look,) = looks
            assert look is not None, "it was found"
            if rows.definition(look.log_id, look.state).derive(read_lane).pipeline.building:
                return Decision((None,))
            lane = look.log_id, incarnation_of(look.config, look.state)
            if look.state.floor >= floor or lane != (self.mark.log_id, self.mark.incarnation):
                return Decision((None,))
            return Decision((None,), (Draft(look.log_id, "retain", replace(look.state, floor=floor)),))

        if floor > head.state.floor:
            self._log.control(self._which, lambda controls: controls.find_living(self._which), decide)
        self._commit(replace(self.mark, retained_ms=now_ms))

    def _drop(self) -> None:
        """Removes rows of a generation whose time has come, as many as one pass may."""
        now_ms, table = self._now_ms(), self._folder.table
        due = next((one for one in self.mark.dropped if one.next_ms <= now_ms), None)
        if due is None or not table.remove(self.mark.log_id, due.generation):
            return
        rest = tuple(one for one in self.mark.dropped if one != due)
        if not due.turn:
            rest = (*rest, Dropped(due.generation, now_ms + DROP_AGAIN_MS, 1))
        self._commit(replace(self.mark, dropped=rest))
