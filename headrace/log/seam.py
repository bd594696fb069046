"""The interface between the log and a surface: what a surface decides, and the values on which it decides.

A surface is one kind of named things: streams, topics, feature tables. It provides the function `decide`, for appends
and for control verbs. From the current logs, the requests and the clock, `decide` computes the entries to write, the
rows and conditions that join their commit, the objects that they name, and an answer for each request. The log writes
the objects first, then puts the entries into their slots, and calls `decide` again if another writer was first. A
surface never reads or writes a store itself.

The rules that all surfaces share are below: append times, deadlines, how records and producers change a state,
companions, forks. They are pure functions, as decisions are: nothing here reads a clock or a store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from headrace.batch import Batch, Record
from headrace.definition import Definition, encode
from headrace.errors import Conflict, Gone, HeadraceError, NotFound
from headrace.limits import MAX_COMPANIONS, MAX_FORK_DEPTH, PRODUCERS_IN_STATE
from headrace.objects import keys
from headrace.tables.catalog import Row
from headrace.tables.items import Guard
from headrace.tables.producers import Key
from headrace.wal.state import Ancestor, Companion, DefinitionRef, LogConfig, LogState, Producer, TimeRun

T = TypeVar("T")

_LATEST_MS = 253_402_300_799_999  # the end of year 9999: what RFC 3339 can say

Which = str | tuple[str, str]
"""Identifies a log: a name means its main log, a name with a role one of its companions."""


def split(which: Which) -> tuple[str, str]:
    """Returns the name and the role; the role of a main log is empty."""
    return (which, "") if isinstance(which, str) else which


def which_of(name: str, role: str) -> Which:
    """Returns the log with a name and a role; the role of a main log is empty."""
    return (name, role) if role else name


class Look(NamedTuple):
    """A log in the form that decisions take.

    Attributes:
        row: the row of its name; for a companion, the row that is derived from it.
        state: its state as of the newest entry.
        touched_ms: when a read last renewed the sliding TTL, as far as this process knows; 0 if never.
    """

    row: Row
    state: LogState
    touched_ms: int = 0

    @property
    def log_id(self) -> str:
        """The log's id."""
        return self.row.log_id

    @property
    def config(self) -> LogConfig:
        """The log's configuration, which never changes."""
        return self.row.config


class Draft(NamedTuple):
    """An entry as a surface decides it; the log adds slot, predecessor and payload.

    Attributes:
        log_id: id of a log in the decision, or of a new one.
        kind: the kind of entry; surfaces have kinds of their own.
        state: the log's state after the entry.
        batches, times: its records, and their append times.
        requests: numbers of the requests that it answers. Other requests are answered by the state alone.
        config: the configuration, if this is the first entry of a new log.
    """

    log_id: str
    kind: str
    state: LogState
    batches: Sequence[Batch] = ()
    times: tuple[TimeRun, ...] = ()
    requests: tuple[int, ...] = (0,)
    config: LogConfig | None = None


class NamedObject(NamedTuple):
    """An object that an entry names. It is written before the entry, and never changes.

    Attributes:
        definition: the decoded `data`, if it is a definition, so that it can be cached.
    """

    key: str
    data: bytes
    definition: Definition | None = None


class Decision(NamedTuple):
    """The result of deciding requests.

    Attributes:
        answers: an answer for each request; it may be an error.
        entries: the entries to commit, all or none; empty if nothing changes. The first one carries the guards.
        guards: rows and conditions that join the commit.
        objects: the objects that the entries name.
    """

    answers: Sequence[Any]
    entries: tuple[Draft, ...] = ()
    guards: tuple[Guard, ...] = ()
    objects: tuple[NamedObject, ...] = ()

    @property
    def tells(self) -> bool:
        """Whether some answer depends on the state alone: a refusal, or a repeat. No slot checks such an answer."""
        answered = {number for entry in self.entries for number in entry.requests}
        return len(answered) < len(self.answers)


class Rows(Protocol):
    """What a decision may read in addition to states."""

    def producer(self, log_id: str, producer_id: str) -> Producer | None:
        """Returns the row of a producer that is not in the state; None if there is none."""

    def key(self, log_id: str, digest: str) -> Key | None:
        """Returns the row of an idempotency key; None if there is none."""

    def definition(self, log_id: str, state: LogState) -> Definition:
        """Returns the definition that a state names."""

    def record(self, row: Row, position: int) -> bytes:
        """Returns the data of the record at a position, which must exist."""

    def page(self, row: Row, position: int, max_records: int, max_bytes: int) -> list[Record]:
        """Returns consecutive records with all their columns, from `position` on: `max_records` of them must exist. Returns
        at least one, and no more once their data and meta reach `max_bytes`.
        """

    def object(self, key: str, decode: Callable[[bytes, str], T]) -> T:
        """Returns the object with this key, which a state names, decoded; cached. Raises Damaged if it is missing.

        Args:
            decode: decodes the object's bytes; gets the key, too, for errors.
        """

    def counts(self, what: str) -> Sequence[int]:
        """Returns what each shard of a counter holds."""

    def table(self, name: str) -> Any:
        """Returns the adapter of a surface's own table."""


class Ids(Protocol):
    """The source of ids for decisions, and what prevented the commits of the decisions before."""

    @property
    def refused(self) -> Sequence[tuple[Guard, Any]]:
        """The guards of those decisions that refused, in order, each with the row that refused it, if it told."""

    def log(self) -> str:
        """Returns a new log id."""

    def nonce(self, data: bytes) -> str:
        """Returns a nonce for an object's key: the same for equal data while one request is decided repeatedly."""


class Request(Protocol):
    """A request that is to be decided.

    Attributes:
        request: the surface's request value.
        request_id: its random id, by which a row is recognised as its own; empty for a control verb.
        memo: what the surface keeps about it from one decision to the next.
    """

    request: Any
    request_id: str
    memo: Any


Decide = Callable[[Sequence[Look | None], Sequence[Request], Rows, int, Ids], Decision]
"""The function that decides requests: `decide(logs, requests, rows, now_ms, ids)`.

Args:
    logs: the logs, in the order in which they were requested; None for a name that does not exist.
    now_ms: the server's clock.

Raises:
    HeadraceError: all requests are refused.
"""


class Surface:
    """A surface as the log knows it: its name, its messages, and how it decides an append. Stateless.

    Attributes:
        name: its name in the catalog.
        noun: the word for one of its named things in messages.
    """

    name: ClassVar[str]
    noun: ClassVar[str]

    def look_at(self, which: Which) -> tuple[Which, ...]:
        """Returns the logs on which appends to one log are decided, that log first. `decide` may write to each of
        them.
        """
        return (which,)

    def decide(
        self, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides appends to one log; arguments and result as in `Decide`. `logs` are those that `look_at` returns, in
        its order, the log appended to first; all of them exist, but some may have ended. Each surface overrides this,
        except `AnySurface`, because workers never append.
        """
        raise NotImplementedError

    def reserve(
        self,
        looks: Sequence[Look],  # noqa: ARG002
        decision: Decision,
        most_bytes: int,  # noqa: ARG002
        rows: Rows,  # noqa: ARG002
        ids: Ids,  # noqa: ARG002
    ) -> Decision:
        """Returns the decision with what its entries must reserve of a limit of the bytes of all logs. Raises LimitReached.
        It is asked if there is such a limit.
        """
        return decision

    def missing(self, name: str) -> HeadraceError:
        """Returns the error for a name that does not exist."""
        return NotFound(f"{self.noun} not found: name={name}")

    def ended(self, config: LogConfig, state: LogState) -> HeadraceError | None:
        """Returns the error for a log that has ended: Gone if forks still need it, else NotFound. None if it has not
        ended.
        """
        if not state.ended:
            return None
        if state.forks:
            return Gone(f"{self.noun} was {state.ended} and is kept for its forks: name={config.name}")
        return NotFound(f"{self.noun} expired") if state.ended == "expired" else self.missing(config.name)


class AnySurface(Surface):
    """The surface that workers use to end or repair logs of every surface; its messages reach no client."""

    name = ""
    noun = "log"


# Rules that every surface shares.


class Grown(NamedTuple):
    """A log's state after new records were added.

    Attributes:
        time_ms: append time of these records.
        evicted: the producer that was removed from the state to make room for the records' producer; None if none was.
    """

    state: LogState
    time_ms: int
    evicted: Producer | None = None


def deadline_ms(config: LogConfig, state: LogState, touched_ms: int) -> int | None:
    """Returns when the log expires (epoch ms) if nothing touches it; None if never. `touched_ms` is when a read last
    renewed the sliding TTL.
    """
    if config.expires_at_ms is not None:
        return config.expires_at_ms
    if config.ttl_ms is None:
        return None
    return max(config.created_ms, state.touched_ms, touched_ms) + config.ttl_ms


def record_time(previous_ms: int, now_ms: int, hint_ms: int | None) -> int:
    """Returns the append time of new records: the hint, else now, but never before the previous record's."""
    return max(previous_ms, min(now_ms if hint_ms is None else hint_ms, _LATEST_MS))


def grow(
    state: LogState,
    records: Batch,
    now_ms: int,
    hint_ms: int | None = None,
    producer: Producer | None = None,
) -> Grown:
    """Returns the log's state after these records are added, perhaps those of a producer, and their append time. It renews
    a sliding deadline.
    """
    producers, evicted = state.producers, None
    if producer is not None:
        rest = [one for one in producers if one.id != producer.id]
        if len(rest) == PRODUCERS_IN_STATE:
            evicted = rest.pop(0)
        producers = (*rest, producer)
    time_ms = record_time(state.append_time_ms, now_ms, hint_ms)
    after = replace(
        state,
        next_offset=state.next_offset + len(records),
        append_time_ms=time_ms if records else state.append_time_ms,
        touched_ms=max(state.touched_ms, now_ms),
        total_bytes=state.total_bytes + len(records.data),
        producers=producers,
        producers_spilled=state.producers_spilled or evicted is not None,
    )
    return Grown(after, time_ms, evicted)


def name_definition(log_id: str, number: int, definition: Definition, ids: Ids) -> tuple[DefinitionRef, NamedObject]:
    """Returns the reference by which a state names a definition, and the object with that definition, to be written."""
    data = encode(definition)
    ref = DefinitionRef(number, ids.nonce(data), definition.schema_version, definition.own.kind)
    return ref, NamedObject(keys.definition(log_id, number, ref.nonce), data, definition)


def name_companions(config: LogConfig, content_types: Mapping[str, str], ids: Ids) -> LogConfig:
    """Returns `config`, that of a new main log, with a companion for each role in `content_types` (content type by role).
    Each gets a new log id; `create_companions` drafts their first entries.

    Raises:
        ValueError: there are more than `MAX_COMPANIONS`. All logs of a name end in one commit, which holds no more.
    """
    if len(content_types) > MAX_COMPANIONS:
        raise ValueError(f"too many companions: limit={MAX_COMPANIONS} received={len(content_types)}")
    companions = (Companion(role, ids.log(), content_type) for role, content_type in content_types.items())
    return replace(config, companions=tuple(companions))


def create_companions(row: Row, definitions: Mapping[str, DefinitionRef] = MappingProxyType({})) -> tuple[Draft, ...]:
    """Returns the drafts of the first entries of a new row's companions, which are empty logs; they join the commit that
    creates the main log. `definitions` has the built-in definition of each role that has one.
    """
    return tuple(
        Draft(one.log_id, "create", LogState(definition=definitions.get(one.config.role)), config=one.config)
        for one in row.companions
    )


def counts_fork(source: Look) -> Draft:
    """Returns the draft of the entry that adds one to the source's number of forks; it is committed with the fork's
    creation.
    """
    return Draft(source.log_id, "fork", replace(source.state, forks=source.state.forks + 1))


def lineage_of(source: Look, base: int) -> tuple[Ancestor, ...]:
    """Returns what a fork of `source` that begins at offset `base` inherits, oldest first.

    Raises:
        Conflict: forks are nested too deep.
    """
    inherited = [replace(ancestor, through=min(ancestor.through, base)) for ancestor in source.config.lineage]
    lineage = [*inherited, *_incarnations(source, base)]
    # An ancestor that adds nothing below the fork point is not needed; the source is, for its cursors.
    kept: list[Ancestor] = []
    reached = 0
    for ancestor in lineage:
        if ancestor.through > reached:
            kept.append(ancestor)
            reached = ancestor.through
    if not kept or kept[-1] != lineage[-1]:
        kept.append(lineage[-1])
    if len(kept) > MAX_FORK_DEPTH:
        raise Conflict(f"forks are nested too deep: limit={MAX_FORK_DEPTH}")
    return tuple(kept)


def _incarnations(source: Look, base: int) -> list[Ancestor]:
    """Returns the source as an ancestor, once for each incarnation that recoveries gave it: its older cursors stay
    accepted.
    """
    found, incarnation = [], source.config.incarnation
    for recovery in source.state.recoveries:
        found.append(Ancestor(source.log_id, incarnation, min(recovery.at, base)))
        incarnation = recovery.incarnation
    return [*found, Ancestor(source.log_id, incarnation, base)]
