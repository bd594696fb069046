"""The verbs of streams as one object, and the rules of an append.

The rules are pure functions: from requests and a log's state they compute an entry and the answers, including those to
repeated and refused requests. (`headrace.streams.create` has the rules of a create.) An append is prepared under the
definition that the log's state names. If another writer changes the definition meanwhile, it takes the slot, so the
commit fails and the append is decided again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headrace.batch import Batch
from headrace.definition import Definition
from headrace.errors import Conflict, HeadraceError, InvalidRequest
from headrace.index.fetching import RunCache
from headrace.log import seam as rules
from headrace.log.commit import Found
from headrace.log.control import Controls
from headrace.log.logs import Log
from headrace.log.seam import Decision, Draft, Ids, Look, Request, Rows, Surface
from headrace.log.stores import Stores
from headrace.streams.create import decide_create
from headrace.streams.errors import ProducerGap, SequenceConflict, StaleProducer, StreamClosed
from headrace.streams.profiles import check_kind, prepare
from headrace.streams.values import (
    STREAMS,
    Appended,
    AppendRequest,
    Created,
    CreateRequest,
    extension_of,
    marked,
    state_of,
)
from headrace.tables.producers import PutProducer
from headrace.wal.state import DefinitionRef, LogConfig, LogState, Producer, TimeRun, encode_cursor, incarnation_of


class Accepted(NamedTuple):
    """The verdict that a request changes the log: the state after it, the append time of its records, the answer, and the
    producer that the state has no more room for, which must be stored in a row (None: all fit).
    """

    state: LogState
    time_ms: int
    answer: Appended
    evicted: Producer | None = None


class Unchanged(NamedTuple):
    """The verdict that the request is a repeat of something done before, so that nothing is written."""

    answer: Appended


class Refused(NamedTuple):
    """The verdict that the request contradicts the state, with the error to answer; nothing is written."""

    error: HeadraceError


Verdict = Accepted | Unchanged | Refused


class Prepared(NamedTuple):
    """A request as checked and normalized under one definition of a log. `fault` is the error if its records are invalid,
    else None.
    """

    log_id: str
    definition: DefinitionRef | None
    request: AppendRequest
    fault: HeadraceError | None


class StreamSurface(Surface):
    """The rules by which a log serves as a stream: its name in the catalog and in messages, and how appends are
    decided.
    """

    name = STREAMS
    noun = "stream"

    def decide(
        self, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides appends and closes of one stream, as `decide_appends` does."""
        return decide_appends(logs, requests, rows, now_ms, ids)


SURFACE = StreamSurface()


class Streams(Log):
    """The operations on streams, such as create, append and read, each by the stream's name. Methods block, may be called
    by any thread, and raise the errors of `Log`.
    """

    def __init__(self, stores: Stores, run_cache: RunCache | None = None) -> None:
        """Creates the verbs. If `run_cache` is None, a cache in memory is created."""
        super().__init__(stores, SURFACE, run_cache)

    def create(self, name: str, request: CreateRequest) -> Created:
        """Creates a stream or a fork. If an equal one exists, returns that. Raises Conflict if the name has another
        configuration or forks still need its deleted data, NotFound if a fork's source does not exist.
        """

        def find(controls: Controls) -> Found:
            found = controls.find_any(name)
            (picture,) = found.pictures
            if request.fork is None or (picture is not None and not picture.state.ended):
                return found
            source = controls.find(request.fork.source)
            return Found((picture, *source.pictures), source.read)

        others = (request.fork.source,) if request.fork is not None else ()
        created: Created = self.control(name, find, decide_create, (name, request), *others)
        return created

    def append(self, name: str, request: AppendRequest) -> Appended:
        """Appends records, closes the stream, or both. Raises a HeadraceError if it is refused, or if its outcome is
        unknown.
        """
        ticket = self.appender.append(name, request)
        appended: Appended = ticket.result()
        return appended._replace(tries=ticket.tries)

    def definition(self, name: str) -> Definition:
        """Returns the stream's current definition: its schema registry and profile."""
        return self.definition_of(self.head(name))


# The rules of an append.


def decide_appends(
    logs: Sequence[Look | None],
    requests: Sequence[Request],
    rows: Rows,
    now_ms: int,
    ids: Ids,  # noqa: ARG001
) -> Decision:
    """Decides appends and closes of one stream. Returns an answer or error for each request, and one entry for all that are
    accepted; no entry if none is.
    """
    (look,) = logs
    assert look is not None, "an append looks at a log"
    state = look.state.retained(now_ms)  # first: marks are joined, and what was gone for readers must not come back
    answers: list[Appended | HeadraceError] = []
    accepted: list[int] = []
    batches: list[Batch] = []
    times: list[TimeRun] = []
    evicted: dict[str, Producer] = {}
    for number, asked in enumerate(requests):
        prepared = asked.memo = _prepare(look, asked, rows, now_ms)
        request = prepared.request
        verdict = append(look.config, state, request, now_ms, _spilled(look, state, request, evicted, rows))
        if prepared.fault is not None and isinstance(verdict, Accepted):
            verdict = Refused(prepared.fault)
        if isinstance(verdict, Refused):
            answers.append(verdict.error)
            continue
        answers.append(verdict.answer)
        if isinstance(verdict, Accepted):
            state = verdict.state
            accepted.append(number)
            if request.producer is not None:
                evicted.pop(request.producer.id, None)
            if verdict.evicted is not None:
                evicted[verdict.evicted.id] = verdict.evicted
            if request.records:
                times.append(TimeRun(len(request.records), verdict.time_ms))
                batches.append(request.records)
    if not accepted:
        return Decision(answers)
    kind = "data" if batches else "close"
    entry = Draft(look.log_id, kind, state.retained(now_ms), batches, tuple(times), tuple(accepted))
    return Decision(answers, (entry,), tuple(PutProducer(look.log_id, one) for one in evicted.values()))


def _prepare(look: Look, asked: Request, rows: Rows, now_ms: int) -> Prepared:
    """Checks and normalizes a request's records under the current definition; returns an error with them instead of
    raising it. Reuses the result in `asked.memo` unless the definition has changed.
    """
    log_id, ref = look.log_id, look.state.definition
    request: AppendRequest = asked.request
    known: Prepared | None = asked.memo
    if known is not None and (known.log_id, known.definition) == (log_id, ref):
        return known
    definition = None if ref is None or not request.records else rows.definition(log_id, look.state)
    try:
        if request.profile is not None:
            check_kind(definition, request.profile)
        if definition is None:
            return Prepared(log_id, ref, request, None)
        records = prepare(definition, request.content_type, request.records, now_ms)
    except HeadraceError as exc:
        return Prepared(log_id, ref, request, exc)
    return Prepared(log_id, ref, replace(request, records=records), None)


def _spilled(
    look: Look, state: LogState, request: AppendRequest, evicted: Mapping[str, Producer], rows: Rows
) -> dict[str, Producer | None]:
    wanted = unknown_producer(state, request)
    if wanted is None:
        return {}
    return {wanted: evicted[wanted] if wanted in evicted else rows.producer(look.log_id, wanted)}


def append(
    config: LogConfig,
    state: LogState,
    request: AppendRequest,
    now_ms: int,
    spilled: Mapping[str, Producer | None],
) -> Verdict:
    """Returns the verdict on one append or close: accepted, unchanged (a repeat), or refused.

    Args:
        config, state: configuration and state of the log.
        request: the append or close.
        now_ms: the server's clock.
        spilled: rows of producers that are not in the state; required if `unknown_producer` returns the request's
            producer.
    """
    gone = SURFACE.ended(config, state)
    if gone is not None:
        return Refused(gone)
    known, stream = _producer(state, request, spilled), state_of(state)
    if request.producer is not None:
        early = _check_producer(config, state, request.producer, known)
        if early is not None:
            return early
    if stream.closed:
        if not request.records and request.producer is None and request.close:
            return Unchanged(Appended(_tail(config, state), True, True, None))
        return Refused(StreamClosed(_tail(config, state)))
    if request.records and request.content_type != config.content_type:
        return Refused(
            Conflict(
                f"content type differs from the stream's: stream={config.content_type} request={request.content_type}"
            )
        )
    if request.seq is not None and stream.last_seq is not None and request.seq <= stream.last_seq:
        return Refused(SequenceConflict(stream.last_seq, request.seq))
    return _accept(config, state, request, now_ms)


def unknown_producer(state: LogState, request: AppendRequest) -> str | None:
    """Returns the id of the producer whose row must be read before `append` can decide; None if the state is enough."""
    if request.producer is None or not state.producers_spilled:
        return None
    if any(producer.id == request.producer.id for producer in state.producers):
        return None
    return request.producer.id


def _producer(state: LogState, request: AppendRequest, spilled: Mapping[str, Producer | None]) -> Producer | None:
    if request.producer is None:
        return None
    for producer in state.producers:
        if producer.id == request.producer.id:
            return producer
    return spilled.get(request.producer.id) if state.producers_spilled else None


def _check_producer(config: LogConfig, state: LogState, asked: Producer, known: Producer | None) -> Verdict | None:
    """Returns the verdict of protocol § 5.2.1 on a producer's epoch and sequence number, a repeat or a refusal; None if the
    write is new.
    """
    if known is None or asked.epoch > known.epoch:
        if asked.seq == 0:
            return None
        if known is None:
            # The protocol leaves a first write that is not number 0 open; 409 lets a pipelining client wait for it.
            return Refused(StreamClosed(_tail(config, state)) if state.is_final else ProducerGap(0, asked.seq))
        return Refused(InvalidRequest("a new producer epoch must start at sequence 0"))
    if asked.epoch < known.epoch:
        return Refused(StaleProducer(known.epoch))
    if asked.seq <= known.seq:
        return Unchanged(Appended(_tail(config, state), state.is_final, True, known))
    if asked.seq > known.seq + 1 and not state.is_final:
        return Refused(ProducerGap(known.seq + 1, asked.seq))
    return None


def _accept(config: LogConfig, state: LogState, request: AppendRequest, now_ms: int) -> Accepted:
    grown = rules.grow(state, request.records, now_ms, request.time_hint_ms, request.producer)
    after = grown.state
    if request.seq is not None or request.close:
        stream = state_of(state)
        last_seq = request.seq if request.seq is not None else stream.last_seq
        after = replace(after, extension=extension_of(replace(stream, last_seq=last_seq, closed=request.close)))
    after = marked(after, len(request.records), len(request.records.data))
    answer = Appended(_tail(config, after), request.close, False, request.producer)
    return Accepted(after, grown.time_ms, answer, grown.evicted)


def _tail(config: LogConfig, state: LogState) -> str:
    return encode_cursor(incarnation_of(config, state), state.next_offset)
