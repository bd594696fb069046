"""The steps that mutants put in place of the engine's. Each is the engine's own, with one thought left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from headrace.errors import Damaged, NotFound, OutcomeUnknown, Overloaded, StoreThrottled, StoreTimeout
from headrace.log import context as contexts
from headrace.log import read, seam
from headrace.log.commit import Appender, Attempt
from headrace.log.control import Controls
from headrace.log.join import read_payload
from headrace.log.seam import Decision
from headrace.recovery import names, survey
from headrace.streams import create as creating
from headrace.streams import verbs as streams
from headrace.tables.unborn import UNBORN, Born
from headrace.wal import Committed, Outcome, SlotTaken, TooLate
from headrace.wal.state import Entry, incarnation_of

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
                return TooLate(), True
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


def follow_anything(self: Appender, looked: Any, outcome: Outcome, read: Any) -> Any:
    """Believes whatever is in the slot."""
    if not isinstance(outcome, SlotTaken):
        return None
    entry = outcome.entry
    return [
        self._context.pictures.remember(one.row, entry, read) if one.row.log_id == entry.log_id else one
        for one in looked
    ]


_payload = Attempt._payload


def payload_written_once(self: Attempt, log_id: str, slot: int, batches: Any, read: Any) -> Any:
    """Names the object that was written for the first try, however long ago."""
    known = self._payloads.get(log_id)
    if known is not None and list(map(id, known.batches)) == list(map(id, batches)):
        return known
    return _payload(self, log_id, slot, batches, read)


def follow_no_store(self: Any, sent_ms: int, told_ms: int) -> bool:
    """Leaves the clock as the machine has it."""
    return False


def no_guard(*_: Any) -> None:
    """In the place of a guard."""


def is_old_by_monotonic(self: contexts.Pictures, read: Any) -> bool:
    """Looks at one clock only."""
    age_ms: float = (self.read_time().monotonic - read.monotonic) * 1000
    return age_ms > self._stores.settings.state_age_ms


class BornAnyway(Born, frozen=True):
    """Removes an announcement, if there is one."""

    def check(self, tables: Any) -> None:
        """As if it were there, and were not buried."""

    def apply(self, tables: Any) -> None:
        """As it should be, whatever is there."""
        tables["catalog"].rows.pop((UNBORN, self.log_id), None)


# Definitions.

_prepare = streams._prepare


def prepare_once(look: Any, asked: Any, rows: Any, now_ms: int) -> Any:
    """Keeps what was prepared first."""
    return asked.memo or _prepare(look, asked, rows, now_ms)


def write_nothing(self: Any, objects: Any) -> None:
    """This process knows what the objects hold."""


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
    return any(getattr(answer, "duplicate", False) or getattr(answer, "deduped", False) for answer in self.answers)


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
