"""Broken variants of feature tables: each takes out the rule that averts one hazard (docs/architecture.md)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from headrace.errors import HeadraceError, StoreError
from headrace.features import backfill, define, documents, events, fold, register, restore, tail, verbs
from headrace.features.pipeline import keys
from headrace.features.pipeline.tables import Table
from headrace.features.values import lane_state_of
from headrace.tables import marks
from headrace.tables.features import MemoryFeatures, StateRow
from headrace.tables.items import Refusal
from headrace.tables.marks import Build, Mark
from headrace.tables.producers import PutKey
from tests.simulation.mutant import Mutant

# Readers.


def _merge_after_the_mark(self: Any, one: Any, *rest: Any) -> Any:
    """The mark is read after the rows, and what is below it is let go of."""
    mark = self._log.mark_of(one.head)
    if mark is not None and (one.mark is None or mark.folded > one.mark.folded):
        one.trim(mark)
    return _merge(self, one, *rest)


class _WithoutOffsets(dict[Any, Any]):
    """Rows that do not say how far ahead they are."""

    def values(self) -> Any:
        return ()


def _find_apart(self: Any, namespace: str, requests: Sequence[Any], rows: list[Any], *, stale: bool) -> Any:
    """What this process does not know is looked for by itself."""
    view, found, ends = self.known(namespace), dict[int, Any](), dict[Any, int]()
    for is_known in (True, False):
        places = [place for place, one in enumerate(requests) if view.has_table(one.table) == is_known]
        own = [rows[place] for place in places]
        some, more = _find(self, namespace, [requests[place] for place in places], own, stale=stale)
        found |= {places[at]: one for at, one in some.items()}
        ends |= more
        for place, one in zip(places, own, strict=True):
            rows[place] = one
    return found, ends


def _read_whatever_is_there(call: Any, calls: Sequence[Any]) -> list[Any]:
    return [_WithoutOffsets(found) if isinstance(found, dict) else found for found in map(call, calls)]


def _add_without_pipelines(_: Any, one: Any, newest: Any, read: Any) -> None:
    one.newest, one.read = newest, read
    one.head = one.head._replace(state=newest.state)


def _newest_pipeline(self: Any, _: int) -> Any:
    return self.last


def _key_of_the_raw_event(self: Any, row: Mapping[str, Any]) -> Any:
    placed = _entity_of(self, row)
    return None if placed is None else (keys.encode([row[name] for name in self.keys]), placed[1])


def _generation_of_any_incarnation(table: str, generation: str, _: object) -> str:
    return f"{table}.{generation}"


def _mark_of_any_incarnation(self: Any, head: Any) -> Mark | None:
    found: Mark | None = self.rows.mark(head.log_id)
    return found


# Folders.


def _put_anyhow(self: Any, row: StateRow, _: StateRow | None) -> StateRow:
    self.kept[row.key] = row
    return row


class _Forgetful(StateRow):
    """A row that does not say which events it has."""

    as_of = 0


def _load_forgetful(self: Any, *arguments: Any) -> Iterator[Any]:
    for key, row, entity in _load(self, *arguments):
        yield key, row and _Forgetful(*row), entity


def _write_forgetful(self: Any, changed: Sequence[Any]) -> None:
    _write(self, [(row, before and StateRow(*before), entity) for row, before, entity in changed])


def _write_later(self: Any, changed: Sequence[Any]) -> None:
    self.__dict__.setdefault("later", []).append(changed)


def _commit_before_the_rows(self: Any, mark: Mark) -> None:
    _commit(self, mark)
    for changed in self._folder.__dict__.pop("later", ()):
        _write(self._folder, changed)


def _stop_nothing(mark: Mark, *_: object) -> Mark:
    return mark


def _write_pruned(self: Any, changed: Sequence[Any]) -> None:
    """What is dead by the folder's clock is removed, and not what is dead when the newest event came."""
    found = []
    for row, before, entity in changed:
        _prune(entity.table.features, entity.state, self.clock.now_ms())
        found.append((row._replace(data=fold.encode_row(entity.table.features, entity.state)), before, entity))
    _write(self, found)


def _prune(features: Any, state: Any, now_ms: int) -> None:
    for place, window in enumerate(features._windows):
        floor = window.first_live(now_ms)
        dead = bisect_left(state.axes[place], floor, hi=max(0, len(state.axes[place]) - 1))
        del state.axes[place][:dead]
        for index in features._members[place] if dead else ():
            features._operators[index].prune(state.cells[index], dead, floor)


# Back-fills.


class _Table:
    """The table of rows with another `put`."""

    def __init__(self, rows: Any, put: Any) -> None:
        self._rows, self.put = rows, put

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)


def _install_by(self: Any, put: Any, *given: Any) -> Any:
    rows = self._folder.table
    self._folder.table = _Table(rows, put)
    try:
        return _install(self, *given)
    finally:
        self._folder.table = rows


def _install_anyhow(self: Any, *given: Any) -> Any:
    rows = self._folder.table
    return _install_by(self, lambda row, _: rows.put(row, rows.get([row.key]).get(row.key)), *given)


def _install_after_the_mark(self: Any, *given: Any) -> Any:
    later = list[Any]()
    build = _install_by(self, lambda *row: later.append(row), *given)
    for row in later:
        self._folder.table.put(*row)
    return build


def _install_up_to_the_others(self: Any, *given: Any) -> Build:
    """What came since the barrier is taken for installed."""
    build = _install(self, *given)
    return replace(build, folded=self.mark.folded) if build.folded >= 0 else build


def _note_as_read(mark: Mark, read: tuple[str, ...], built: tuple[str, ...], later_ms: int) -> Mark:
    """A generation is folded with the others from the beginning."""
    return _note(mark, (*read, *built), (), later_ms)


def _end_in_one_lane(self: Any, namespace: str, table: str, building: Any, heads: Sequence[Any]) -> bool | None:
    """A generation that one lane has is read in all."""
    for head in heads:
        mark = self._log.mark_of(head)
        if mark is not None and documents.generation_of(table, building.generation, head) in mark.generations:
            return True
    found: bool | None = _ending(self, namespace, table, building, heads)
    return found


def _building_nothing(_: object) -> Any:
    return SimpleNamespace(pipeline=SimpleNamespace(building={}))


# Registrations, and pushes.


def _finish_perhaps(self: Any, namespace: str) -> None:
    with suppress(HeadraceError, StoreError):
        _finish(self, namespace)


def _older_than_anything(state: Any) -> Any:
    return replace(lane_state_of(state), registered=(-1, -1))


def _taken_for_ever(self: PutKey, tables: Any) -> Refusal | None:
    standing = tables["producers"].keys.get((self.log_id, self.digest))
    return standing and Refusal(standing._replace(until_ms=2**50))


_merge, _entity_of, _finish = tail.Lanes._merge, Table.entity_of, register.Registrations.finish
_load, _write, _commit = fold.Folder.load, fold.Folder.write, fold._Run._commit
_find, _install, _ending, _note = verbs.Features._find, fold._Run._install, backfill.Backfills._ending, marks.note


_mutant = partial(Mutant, world="features")


MUTANTS = (
    _mutant(
        "mark read after the rows",
        "a mark that is newer than a row hides events",
        (tail.Lanes, "_merge", _merge_after_the_mark),
    ),
    _mutant(
        "row ahead of the tail",
        "a folder comes between the reads of the tail and of the rows",
        (tail, "_READERS", SimpleNamespace(map=_read_whatever_is_there)),
    ),
    _mutant(
        "tail keeps its pipelines",
        "a registration drops rows that a reader knows",
        (tail.Lanes, "_add", _add_without_pipelines),
    ),
    _mutant(
        "newest pipeline for old events",
        "a registration amid events that are not folded",
        (events.Pipelines, "at", _newest_pipeline),
    ),
    _mutant(
        "key of the raw event", "a derived event groups by another value", (Table, "entity_of", _key_of_the_raw_event)
    ),
    _mutant(
        "generations of any incarnation",
        "a recovery uses offsets again, and finds rows of lost events",
        (documents, "generation_of", _generation_of_any_incarnation),
        (fold, "generation_of", _generation_of_any_incarnation),
        (tail, "generation_of", _generation_of_any_incarnation),
        (verbs, "generation_of", _generation_of_any_incarnation),
    ),
    _mutant(
        "mark of any incarnation",
        "a recovery uses offsets again, and finds a mark beyond them",
        (register.Registrations, "mark_of", _mark_of_any_incarnation),
    ),
    _mutant("rows written without a condition", "two folders of one lane", (MemoryFeatures, "put", _put_anyhow)),
    _mutant(
        "any lane of the name",
        "a lane is created again amid a pass",
        (fold._Run, "_check_lane", lambda *_: None),
    ),
    _mutant(
        "rows that do not say which events they have",
        "a folder dies between its rows and the mark",
        (fold.Folder, "load", _load_forgetful),
        (fold.Folder, "write", _write_forgetful),
    ),
    _mutant(
        "mark before its rows",
        "a folder dies between the mark and its rows",
        (fold.Folder, "write", _write_later),
        (fold._Run, "_commit", _commit_before_the_rows),
    ),
    _mutant(
        "pruned by the folder's clock",
        "clocks differ: what is dead for the folder lives for a reader",
        (fold.Folder, "write", _write_pruned),
    ),
    _mutant(
        "registration answered before its lanes have it",
        "a registration whose stores fail half-way",
        (register.Registrations, "finish", _finish_perhaps),
    ),
    _mutant(
        "pipeline of an older registration",
        "two processes finish registrations",
        (define, "lane_state_of", _older_than_anything),
    ),
    _mutant(
        "dedupe values are taken for ever",
        "an event comes again after its window",
        (PutKey, "check", _taken_for_ever),
    ),
    _mutant(
        "requests looked for apart",
        "an answer has rows of two prefixes of a lane",
        (verbs.Features, "_find", _find_apart),
    ),
    _mutant(
        "a stop that is not noted",
        "an event makes features fail",
        (marks, "stop", _stop_nothing),
    ),
    _mutant(
        "pushes that ask for no mark",
        "acknowledgements outrun the folder",
        (verbs.Features, "_check_folded", lambda *_: None),
    ),
    _mutant(
        "lanes left as they are by a recovery",
        "lanes and registry go back to different times",
        (register.Registrations, "realign", lambda *_: None),
    ),
    _mutant(
        "rows that are lost are not missed",
        "rows that were back-filled are lost",
        (restore, "_without_rows", lambda *_: ()),
    ),
    _mutant(
        "installed over newer rows",
        "a job's rows overwrite newer ones",
        (fold._Run, "_install", _install_anyhow),
    ),
    _mutant(
        "installed after the mark",
        "a folder dies between the mark and a job's rows",
        (fold._Run, "_install", _install_after_the_mark),
    ),
    _mutant(
        "catch-up without a barrier",
        "a back-fill is read before it has all events: those since the barrier",
        (fold._Run, "_install", _install_up_to_the_others),
    ),
    _mutant(
        "rows of back-fills forgotten",
        "a back-fill is given up when some of its rows are written",
        (marks, "_folded", lambda mark: list(mark.generations)),
    ),
    _mutant(
        "read before its job",
        "a back-fill is read before it has all events: those before the barrier",
        (marks, "note", _note_as_read),
    ),
    _mutant(
        "read when one lane has it",
        "a back-fill is read before it has all events: those of another lane",
        (backfill.Backfills, "_ending", _end_in_one_lane),
    ),
    _mutant(
        "floor that rises under a back-fill",
        "events go that a back-fill reads",
        (fold, "read_lane", _building_nothing),
    ),
    _mutant(
        "back-fill below the floor",
        "events went that a table has, and a back-fill can't read",
        (backfill, "loses", lambda *_: False),
    ),
    _mutant(
        "back-fill never given up",
        "the job of a back-fill fails, or its rows are gone",
        (backfill.Backfills, "_give_up", lambda *_: None),
    ),
)
