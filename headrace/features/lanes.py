"""How events are added to a lane: pure functions, which decide from the lane's state."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
from msgspec.structs import replace

from headrace.batch import Batch
from headrace.definition import Definition
from headrace.errors import HeadraceError, InvalidRequest, LimitReached
from headrace.features.documents import Lane, read_lane
from headrace.features.errors import EventNotFound, WrongLane
from headrace.features.rows import lane_for
from headrace.features.values import FEATURES, Ack, lane_of, lane_state_of
from headrace.log import seam as rules
from headrace.log.seam import Decision, Draft, Ids, Look, Request, Rows, Surface
from headrace.tables.items import Guard
from headrace.tables.producers import Key, PutKey
from headrace.wal.state import TimeRun

MAX_DEDUPED = 90  # events with a dedupe value in one commit: each costs a guard, see `wal.MAX_GUARDS`
_EPOCH_MS = 1_577_836_800_000  # 2020-01-01: an `ack_lsn` is the milliseconds since then, times 4,096, or one more


class PushRequest(NamedTuple):
    """Events to be added to a lane, all or none.

    Attributes:
        events: as decoded from JSON.
        data: the text of each, as it is stored.
    """

    events: Sequence[Any]
    data: Sequence[bytes]

    @property
    def size(self) -> int:
        """The bytes that the request adds to a batch."""
        return sum(map(len, self.data))


class Checked(NamedTuple):
    """What is known of a request under one definition: the digest of each event that has a dedupe value, by its place."""

    definition: Definition
    digests: dict[int, str]


class LaneSurface(Surface):
    """The rules by which a log serves as a lane of events."""

    name = FEATURES
    noun = "event"

    def missing(self, name: str) -> HeadraceError:
        """Returns the error for a name that does not exist."""
        return EventNotFound(name.partition("/")[2])

    def decide(
        self, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides pushes to one lane; each is answered by an `Ack`. Raises LimitReached if one commit can't hold all of
        them.
        """
        look = logs[0]
        assert look is not None, "a push looks at a lane"
        if look.state.ended or look.state.definition is None:
            return Decision([self.missing(look.config.name) for _ in requests])
        return _Pushes(look, rows.definition(look.log_id, look.state), now_ms, ids).decide(requests)


SURFACE = LaneSurface()


class _Pushes:
    """A decision about the pushes of one group: one entry for all that are accepted, and an answer for each."""

    def __init__(self, look: Look, definition: Definition, now_ms: int, ids: Ids) -> None:
        self._look = look
        self._definition = definition
        self._lane: Lane = definition.derive(read_lane)
        self._now_ms = now_ms
        self._stamp_ms = rules.record_time(look.state.append_time_ms, now_ms, None)
        self._main = look.config.main or look.log_id  # lanes share the dedupe values of their event
        refused = [(guard, row) for guard, row in ids.refused if isinstance(guard, PutKey)]
        self._taken: dict[str, Key] = {guard.digest: row for guard, row in refused if guard.log_id == self._main}
        self._own: dict[str, Ack] = {}
        self._state = look.state
        self._ack = lane_state_of(look.state).ack
        self._accepted: list[int] = []
        self._batches: list[Batch] = []
        self._guards: list[Guard] = []

    def decide(self, requests: Sequence[Request]) -> Decision:
        """Decides these requests, in their order."""
        answers = [self._answer(number, asked) for number, asked in enumerate(requests)]
        if len(self._guards) > MAX_DEDUPED:
            raise LimitReached("max_deduped_events", MAX_DEDUPED)
        if not self._batches:
            return Decision(answers)
        extension = replace(lane_state_of(self._state), ack=self._ack)
        state = replace(self._state, extension=extension)
        times = (TimeRun(sum(map(len, self._batches)), state.append_time_ms),)
        draft = Draft(self._look.log_id, "data", state, self._batches, times, tuple(self._accepted))
        return Decision(answers, (draft,), tuple(self._guards))

    def _answer(self, number: int, asked: Request) -> Ack | HeadraceError:
        request: PushRequest = asked.request
        try:
            digests = self._check(asked)
        except (InvalidRequest, WrongLane) as refusal:
            return refusal
        repeats = {place: ack for place, digest in digests.items() if (ack := self._repeat(digest, asked))}
        kept = [place for place in range(len(request.data)) if place not in repeats]
        if not kept:
            return repeats[len(request.data) - 1]
        batch = Batch.of([request.data[place] for place in kept])
        self._state = rules.grow(self._state, batch, self._now_ms).state
        self._ack = max(self._ack + len(kept), (self._now_ms - _EPOCH_MS << 12) + len(kept) - 1)
        self._accepted.append(number)
        self._batches.append(batch)
        ack = self._ack_at(self._ack, self._state.next_offset)
        for place, digest in digests.items():
            if place not in repeats:
                self._own[digest] = ack._replace(is_replay=True)
                self._guards.append(self._put_key(digest, ack, asked.request_id))
        return ack

    def _check(self, asked: Request) -> dict[int, str]:
        """Checks a request's events under the definition in force, once for each definition. Raises EventRefused,
        WrongLane.
        """
        if isinstance(asked.memo, Checked) and asked.memo.definition is self._definition:
            return asked.memo.digests
        event, check = self._lane.pipeline.event, self._lane.pipeline.check
        own = lane_of(self._look.config.role)
        digests: dict[int, str] = {}
        for place, data in enumerate(asked.request.events):
            row = check(data)
            if event.lane_key is not None and lane_for(row[event.lane_key], event.lanes) != own:
                raise WrongLane(event.name)
            if event.dedupe_key is not None and row[event.dedupe_key] is not None:
                digest = digest_of(self._look.config.name, event.dedupe_key, row[event.dedupe_key])
                if digest in digests.values():
                    raise InvalidRequest(f"events of one batch have the same {event.dedupe_key}: event {place}")
                digests[place] = digest
                if len(digests) > MAX_DEDUPED:
                    raise InvalidRequest(f"a batch has too many events with a dedupe value: limit={MAX_DEDUPED}")
        asked.memo = Checked(self._definition, digests)
        return digests

    def _repeat(self, digest: str, asked: Request) -> Ack | None:
        """Returns the answer to an event that repeats another one within its window; None if it repeats none."""
        own = self._own.get(digest)
        if own is not None:
            return own
        row = self._taken.get(digest)
        if row is None or row.until_ms <= self._stamp_ms:
            return None
        ack_lsn, version, lane = map(int, row.note.split(":"))
        is_other = row.request_id != asked.request_id
        return Ack(ack_lsn, version, is_other, self._lane.pipeline.event.name, lane, row.end)

    def _ack_at(self, ack_lsn: int, end: int) -> Ack:
        version = lane_state_of(self._state).registered[1]
        return Ack(ack_lsn, version, False, self._lane.pipeline.event.name, lane_of(self._look.config.role), end)

    def _put_key(self, digest: str, ack: Ack, request_id: str) -> PutKey:
        until_ms = self._stamp_ms + self._lane.pipeline.event.dedupe_window_ms
        note = f"{ack.ack_lsn}:{ack.registry_version}:{ack.lane}"
        key = Key(ack.end - 1, ack.end, until_ms, request_id, note)
        return PutKey(self._main, digest, key, self._stamp_ms)


def digest_of(name: str, field: str, value: Any) -> str:
    """Returns the digest by which the row of a dedupe value is named; `name` is that of the event's logs."""
    return sha256(orjson.dumps([name, field, value])).hexdigest()
