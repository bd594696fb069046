"""One entry into one slot: what every verb that changes a log goes through.

`put` settles an outcome: after a lost or unknown answer it sends the identical entry to the same slot until the slot is
seen to be taken, by it or by another. `verify_slot` is the ack fence: a writer whose picture is old shows that its entry
is part of the chain before anyone hears of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from headrace.clock import Clock, Moment
from headrace.errors import OutcomeUnknown, Overloaded, StoreThrottled, StoreTimeout
from headrace.log.payload import Payloads
from headrace.log.picture import Pictures
from headrace.log.seam import Draft, NamedObject
from headrace.log.stores import Stores
from headrace.log.tail import chained
from headrace.tables.items import Guard
from headrace.wal import Committed, Outcome, SlotTaken
from headrace.wal import slot as slots
from headrace.wal.state import Entry, LogState

MAX_TRIES = 24  # conflicts with other writers before 429; each costs a write unit of the log's partition
_FIRST_PAUSE_S = 0.004
_LONGEST_PAUSE_S = 0.25
_VERIFY_ENTRIES = 64  # in one query of the fence; it rarely needs more than the next one
_system_random = random.SystemRandom().random  # no state that clones of a snapshot would share


class Budget:
    """How long one request may go on writing, and how it waits between tries."""

    def __init__(self, clock: Clock, limit_ms: int, jitter: Callable[[], float] = _system_random) -> None:
        self._clock = clock
        self._until = clock.monotonic() + limit_ms / 1000
        self._jitter = jitter
        self.tries = 0

    @property
    def spent(self) -> bool:
        """The time is over."""
        return self._clock.monotonic() >= self._until

    def again(self, what: str) -> None:
        """Counts a try that met another writer and waits a little.

        Raises:
            Overloaded: tries or time are used up; nothing was written.
        """
        self.tries += 1
        if self.tries >= MAX_TRIES or self.spent:
            raise Overloaded(f"{what}: tries={self.tries}")
        self.pause(self.tries)

    def pause(self, attempt: int) -> None:
        """Sleeps with jitter, longer each time."""
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(attempt, 8))
        self._clock.sleep(longest * (0.2 + 0.8 * self._jitter()))


class Committer:
    """Puts entries into slots."""

    def __init__(self, stores: Stores, pictures: Pictures) -> None:
        self._stores = stores
        self._pictures = pictures

    def put(self, entry: Entry, guards: Sequence[Guard], read: Moment, budget: Budget) -> Outcome:
        """Commits `entry`, or says what was in the way; then nothing was written.

        Args:
            read: when the state that `entry` was decided on was read.

        Raises:
            Overloaded: the store refused until the budget was spent; nothing was written.
            OutcomeUnknown: the store did not say, or the fence could not show that the entry is in the chain.
        """
        unknown = False
        attempt = 0
        while True:
            try:
                outcome = self._stores.wal.commit(entry, guards)
            except (StoreThrottled, StoreTimeout) as exc:
                unknown = unknown or isinstance(exc, StoreTimeout)
                if budget.spent:
                    raise (OutcomeUnknown() if unknown else Overloaded("the store is throttling")) from exc
                attempt += 1
                budget.pause(attempt)
                continue
            if isinstance(outcome, SlotTaken) and outcome.entry.request_ids == entry.request_ids:
                outcome = Committed()  # an earlier try of ours got through
            if unknown and not isinstance(outcome, Committed) and self._pictures.is_old(read):
                raise OutcomeUnknown()  # an earlier try may have was here until it was sealed and trimmed
            if isinstance(outcome, Committed) and self._pictures.is_old(read):
                entries = [entry, *(second for guard in guards for second in guard.entries)]
                verdicts = [self.verify_slot(one) for one in entries]  # each, so that every dead one is removed
                if not all(verdicts):
                    raise OutcomeUnknown()
            return outcome

    def verify_slot(self, entry: Entry) -> bool:
        """Returns whether `entry`, which is in its slot, is part of its log's chain.

        It is if it was never below the published end (only published entries are trimmed, so its slot had not been
        used before), or if successors lead from it, each naming the one before, to such an entry or to the newest
        (which is never trimmed, so a dead item has it above). One step is not enough: two dead items may name each
        other. Else it is a dead item in a trimmed slot, and is removed.
        """
        wal = self._stores.wal
        try:
            end_slot = self._stores.watermarks.get(entry.log_id).end_slot
            last = entry
            while last.slot < end_slot:
                page = wal.read(entry.log_id, start=last.slot + 1, limit=_VERIFY_ENTRIES)
                for after in page.entries:
                    if not chained(last, after):
                        wal.remove_dead(entry)
                        return False
                    last = after
                if page.complete:
                    return True
        except (StoreThrottled, StoreTimeout):
            return False
        return True


class Attempt:
    """What is kept while one commit is decided again and again: its budget, payloads, nonces, and objects written.

    Attributes:
        budget: how long it may go on.
    """

    def __init__(self, stores: Stores, budget: Budget) -> None:
        self.budget = budget
        self._stores = stores
        self._payloads: dict[str, Payloads] = {}
        self._nonces: dict[bytes, str] = {}
        self._written: set[str] = set()

    def log(self) -> str:
        """Returns the id of a new log."""
        return self._stores.log_ids()

    def nonce(self, data: bytes) -> str:
        """Returns the nonce of an object: one for equal data."""
        return self._nonces.setdefault(data, self._stores.request_ids())

    def write(self, objects: Sequence[NamedObject]) -> None:
        """Writes objects that were not written by this attempt."""
        for one in objects:
            if one.key not in self._written:
                self._stores.objects.put(one.key, one.data)
                self._written.add(one.key)

    def entry(self, draft: Draft, before: Entry | None, request_ids: tuple[str, ...], now_ms: int) -> Entry:
        """Returns the entry of a draft after `before` (None: the first of its log), its payload written if it is large."""
        if before is not None:
            entry = control_entry(before, draft.kind, draft.state, request_ids, now_ms)
        else:
            assert draft.config is not None, "a new log has a configuration"
            entry = Entry(
                log_id=draft.log_id,
                slot=slots.first_slot(draft.config.base_offset),
                kind=draft.kind,
                state=draft.state,
                request_ids=request_ids,
                committed_ms=now_ms,
                config=draft.config,
            )
        count = sum(map(len, draft.batches))
        if not count:
            return entry
        payload = self._payloads.setdefault(draft.log_id, Payloads(self._stores)).of(
            draft.log_id, entry.slot, draft.batches
        )
        return replace(entry, count=count, times=draft.times, payload=payload.inline, payload_key=payload.key)


def control_entry(newest: Entry, kind: str, state: LogState, request_ids: tuple[str, ...], now_ms: int) -> Entry:
    """Returns the entry after `newest` that leaves its log in `state`. Delete and what follows use reserved slots."""
    return Entry(
        log_id=newest.log_id,
        slot=newest.next_slot(deleting=bool(state.ended)),
        kind=kind,
        state=state,
        request_ids=request_ids,
        committed_ms=now_ms,
        prev_slot=newest.slot,
        prev_id=newest.id,
        prev_committed_ms=newest.committed_ms,
    )
