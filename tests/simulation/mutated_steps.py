"""The steps that mutants put in place of the engine's. Each is the engine's own, with one thought left out."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace as with_fields
from typing import Any

from msgspec.structs import replace

from emr_jobs import segments
from functions.sealer import handler, seal
from functions.sealer import purge as purging
from functions.sealer.trim import Trimmed
from headrace.errors import Damaged, NotFound, OutcomeUnknown, Overloaded, StoreThrottled, StoreTimeout
from headrace.log import context as contexts
from headrace.log import read, seam
from headrace.log.commit import Attempt
from headrace.log.control import Controls
from headrace.log.join import read_payload
from headrace.log.seam import Decision
from headrace.manifest import manifest as manifests
from headrace.manifest import merging
from headrace.objects import keys
from headrace.recovery import names, survey
from headrace.streams import create as creating
from headrace.streams import verbs as streams
from headrace.wal import Committed, GuardRefused, Outcome, SlotTaken
from headrace.wal.state import Entry, first_slot, incarnation_of
from tests.simulation import background


def everywhere(name: str, value: Any) -> tuple[tuple[Any, str, Any], ...]:
    """Returns the patches that replace a verb of the sealer in each module that imports it."""
    return ((handler, name, value), (background, name, value))


# The commit.


_put = Attempt.put


def _send(
    self: Attempt,
    entry: Entry,
    guards: Sequence[Any],
    read_ms: int,
    *,
    compares: bool = True,
    regroups: bool = False,
) -> tuple[Outcome, bool]:
    is_certain, attempt = True, 0
    while True:
        try:
            outcome = self._context.stores.wal.commit(entry, guards, read_ms)
        except (StoreThrottled, StoreTimeout) as exc:
            if regroups and isinstance(exc, StoreTimeout):
                return GuardRefused(0), True
            is_certain = is_certain and not isinstance(exc, StoreTimeout)
            if self.budget.spent:
                raise (Overloaded("the store is throttling") if is_certain else OutcomeUnknown()) from exc
            attempt += 1
            self.budget.pause(attempt)
            continue
        if compares and isinstance(outcome, SlotTaken) and outcome.entry.request_ids == entry.request_ids:
            outcome = Committed()
        return outcome, is_certain


def send_without_comparing(self: Attempt, entry: Entry, guards: Any, read_ms: int) -> tuple[Outcome, bool]:
    """Whatever is in the slot is another's."""
    return _send(self, entry, guards, read_ms, compares=False)


def send_regrouping(self: Attempt, entry: Entry, guards: Any, read_ms: int) -> tuple[Outcome, bool]:
    """After a timeout, decide again."""
    return _send(self, entry, guards, read_ms, regroups=True)


def put_without_fence(self: Attempt, entry: Entry, guards: Any, read: Any) -> Outcome:
    """Acknowledges whatever is committed."""
    return self._send(entry, guards, read.wall_ms)[0]


def put_without_none_guards(self: Attempt, entry: Entry, guards: Any, read: Any) -> Outcome:
    """As it should be; for mutants that make no guard where there should be one."""
    return _put(self, entry, [guard for guard in guards if guard is not None], read)


def put_definition_without_row(self: Attempt, entry: Entry, guards: Any, read: Any) -> Outcome:
    """Commits a change of the definition to the log alone, without its row."""
    return _put(self, entry, [] if entry.kind == "define" else guards, read)


def follow_no_store(self: Any, sent_ms: int, told_ms: int) -> bool:
    """Leaves the clock as the machine has it."""
    return False


def no_guard(*_: Any) -> None:
    """In the place of a guard."""


def is_old_by_monotonic(self: contexts.Pictures, read: Any) -> bool:
    """Looks at one clock only."""
    age_ms: float = (self.read_time().monotonic - read.monotonic) * 1000
    return age_ms > self._stores.settings.state_age_ms


# Definitions.

_prepare = streams._prepare


def prepare_once(look: Any, asked: Any, rows: Any, now_ms: int) -> Any:
    """Keeps what was prepared first."""
    return asked.memo or _prepare(look, asked, rows, now_ms)


def write_nothing(self: Any, objects: Any) -> None:
    """This process knows what the objects hold."""


# The sealer.


def _trim(parts: Any, log_id: str, end_slot: Any, time_of: Any) -> Trimmed:
    wal = parts.stores.wal
    newest = wal.newest(log_id)
    if newest is None:
        return Trimmed()
    end = end_slot(parts.stores.watermarks.get(log_id), newest)
    oldest_kept_ms = parts.now_ms() - parts.limits.trim_age_ms
    doomed = []
    for entry in wal.read(log_id, end=end).entries:
        if time_of(entry) > oldest_kept_ms:
            break
        doomed.append(entry.slot)
    if doomed:
        wal.remove(log_id, doomed)
    return Trimmed(len(doomed))


def trim_unpublished(parts: Any, log_id: str) -> Trimmed:
    """Old is enough."""
    return _trim(parts, log_id, lambda watermark, newest: newest.slot, lambda entry: entry.committed_ms)


def trim_newest(parts: Any, log_id: str) -> Trimmed:
    """Trims the newest entry, too."""
    return _trim(parts, log_id, lambda watermark, newest: watermark.end_slot, lambda entry: entry.committed_ms)


def trim_by_offset(parts: Any, log_id: str) -> Trimmed:
    """Whatever is at or below the published end offset."""
    return _trim(
        parts,
        log_id,
        lambda watermark, newest: min(
            first_slot(watermark.end_offset + 1) if watermark.generation else 0, newest.slot
        ),
        lambda entry: entry.committed_ms,
    )


def trim_by_hint(parts: Any, log_id: str) -> Trimmed:
    """Ages by a time that clients may name."""
    return _trim(
        parts,
        log_id,
        lambda watermark, newest: min(watermark.end_slot, newest.slot),
        lambda entry: entry.times[-1].time_ms if entry.times else entry.committed_ms,
    )


class Stashing:
    """The manifest module, which remembers the last successor it made."""

    last: Any = None

    def __getattr__(self, name: str) -> Any:
        """As the module."""
        return getattr(manifests, name)

    def successor(self, *args: Any, **kwargs: Any) -> Any:
        """As the module."""
        Stashing.last = manifests.successor(*args, **kwargs)
        return Stashing.last


_ask_to_trim = seal._Run._ask_to_trim


def watermark_first(self: Any, span: Any) -> None:
    """The watermark is raised before the manifest is published."""
    successor = Stashing.last
    _ask_to_trim(self, span)
    self._raise_watermark(successor)


_publish_next = seal._Run._publish_next


def publish_and_clean_up(self: Any, manifest: Any) -> Any:
    """Takes a refused create for another's success, and removes what was uploaded."""
    store = self._parts.manifests

    def publish(new: Any) -> bool:
        key = keys.manifest(new.log_id, new.generation)
        if self._stores.objects.create(key, manifests.encode(new)):
            return True
        made = [one.key for one in new.open_page if manifest is None or one.number >= manifest.segment_count]
        self._stores.objects.delete(made)
        return False

    store.publish = publish
    try:
        return _publish_next(self, manifest)
    finally:
        vars(store).pop("publish", None)  # perhaps another actor of this process did


def publish_merged_anyway(parts: Any, task: Any, made: Any) -> bool:
    """Publishes what followed when it was planned, whatever was published since."""
    known = parts.stores.watermarks.get(task.log_id).generation
    newest = parts.manifests.newest(task.log_id, None, known)
    successor = None
    for generation in range(newest.generation, 0, -1):
        planned = parts.manifests.load(task.log_id, generation)
        found = merging.merged(planned, task.segments, made, parts.now_ms())
        if found is None:
            break
        successor = replace(found, generation=newest.generation + 1)
    if successor is None:
        return False
    return bool(
        parts.stores.objects.create(keys.manifest(task.log_id, successor.generation), manifests.encode(successor))
    )


_read_records = segments.read_records


def read_records_but_one(objects: Any, segment: Any) -> Any:
    """Returns the records, with one replaced by a copy of its neighbour of equal size."""
    records = _read_records(objects, segment)
    data = records.slices()
    for at, (one, following) in enumerate(itertools.pairwise(data)):
        if len(one) == len(following):
            data[at] = following
            break
    return with_fields(records, data=b"".join(data))


def removable_at_once(manifest: Any, now_ms: int, age_ms: int) -> list[str]:
    """Returns all that was replaced, as if nobody needed it."""
    return [one.key for one in manifest.replaced]


class NeverMissing(Exception):
    """In the place of the error that says that a segment is gone."""


def purge_without_watermark(parts: Any, log_id: str) -> purging.Purged:
    """Entries that were never sealed go while the watermark is below them."""
    watermarks = parts.stores.watermarks

    class Unraised:
        def get(self, log: str) -> Any:
            return replace(watermarks.get(log), end_slot=2**80)

        def drop_note(self, log: str, name: str) -> bool:
            return watermarks.drop_note(log, name)

    unraised: Any = Unraised()
    return purging.purge(with_fields(parts, stores=with_fields(parts.stores, watermarks=unraised)), log_id)


def payloads_without_age(parts: Any, newest: Entry) -> list[str]:
    """Whatever no entry names, goes."""
    found = list(parts.stores.objects.list(f"{keys.log_prefix(newest.log_id)}wal/"))
    named = {entry.payload_key for entry in parts.stores.wal.read(newest.log_id).entries}
    return [key for key in found if key not in named]


# Answers.


def alive_by_clock(self: Controls, picture: Any) -> Any:
    """Takes a deadline that has passed for an end."""
    touched_ms = self._pictures.touched_ms(picture.row.log_id)
    deadline_ms = seam.deadline_ms(picture.row.config, picture.state, touched_ms)
    if not picture.state.ended and deadline_ms is not None and self._stores.clock.now_ms() >= deadline_ms:
        raise NotFound("stream expired")
    return picture


def covers_anything(self: Any, position: int) -> bool:
    """Takes some entries for enough."""
    return bool(self.entries)


def fill_across_gaps(self: Any, entries: list[Entry], position: int, stop: int, page: Any) -> int:
    """Goes on wherever the next entry begins."""
    for entry in entries:
        if page.full or position >= stop:
            break
        if entry.next_offset <= position:
            continue
        position = max(position, entry.offset)
        batch = read_payload(self._stores, entry)
        position += page.take(position, batch.part(position - entry.offset, stop - entry.offset))
        page.passed()
    return position


_fill_tail = read.Reader._fill_tail


def fill_or_fail(self: Any, entries: list[Entry], position: int, stop: int, page: Any) -> int:
    """As it should be; for mutants that show it entries which do not continue the page, and would keep it for ever."""
    after = _fill_tail(self, entries, position, stop, page)
    if after == position and position < stop and not page.full:
        raise Damaged(f"no record at {position}")
    return after


def believe_all(entries: Sequence[Entry], newest_is_last: bool) -> list[Entry]:
    """Whatever is in the table is the log."""
    return list(entries)


def _refused(self: Decision) -> bool:
    return any(isinstance(answer, Exception) for answer in self.answers)


def _repeated(self: Decision) -> bool:
    return any(not isinstance(answer, Exception) and answer.duplicate for answer in self.answers)


tells_refusals_only = property(_refused)
tells_duplicates_only = property(_repeated)

_create = creating._create


def create_with_incarnation_0(name: str, replaces: Any, incarnation: int, *rest: Any) -> Any:
    """Creates a name that existed as if it were new."""
    return _create(name, replaces, 0, *rest)


# Recovery.


def incarnation_as_it_was(config: Any, state: Any, now_ms: int) -> int:
    """Returns the incarnation as it was, as if nothing had been lost."""
    return incarnation_of(config, state)


_look = survey.look


def look_up_to_the_watermark(stores: Any, listed: Any, row: Any = None) -> Any:
    """Takes the newest generation from the watermark."""
    known = stores.watermarks.get(listed.log_id).generation
    listed.generations = tuple(number for number in listed.generations if number <= known)
    return _look(stores, listed, row)


def look_past_tombstones(stores: Any, listed: Any, row: Any = None) -> Any:
    """Ignores tombstones: whatever has generations or entries lives."""
    listed.tombstoned = False
    return _look(stores, listed, row)


def joins_anyhow(stores: Any, newest: Any, manifest: Any, oldest: Any, *, is_gone: bool) -> str:
    """Takes the newest entry for the end of its log."""
    return "joins" if newest is not None else "none"


_resolve = names.resolve


def resolve_without_forks(logs: Any) -> Any:
    """Counts stay as they are."""
    return _resolve(logs)._replace(forks=Counter())
