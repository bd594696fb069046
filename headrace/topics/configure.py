"""Creating topics and changing their configuration: pure functions, which decide from the state of a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from headrace.definition import COLUMNS
from headrace.errors import InvalidRequest
from headrace.log import seam as rules
from headrace.log.requests import JSON
from headrace.log.seam import Decision, Draft, Ids, Look, Request, Rows
from headrace.tables.catalog import Row
from headrace.tables.counters import one_more, put_counted
from headrace.tables.items import Guard
from headrace.topics import live, retention
from headrace.topics.decide import TopicSurface, full, grow, key_digest, put_key
from headrace.topics.errors import Incompatible
from headrace.topics.runs import NONE
from headrace.topics.values import (
    LEASE_MS,
    LEASES,
    MAX_JITTER_MS,
    TIMINGS,
    TOPICS,
    Configured,
    TopicConfig,
    TopicState,
    WriteRequest,
    Written,
    topic_of,
)
from headrace.wal.state import LogConfig, LogState, TimeRun, incarnation_of


class PutRequest(NamedTuple):
    """A request to create a topic or to change its configuration.

    Attributes:
        most: how many topics there may be; 0 for any number.
    """

    name: str
    config: TopicConfig
    most: int = 0


class FirstWrite(NamedTuple):
    """A write that creates its topic.

    Attributes:
        most: how many topics there may be; 0 for any number.
    """

    name: str
    request: WriteRequest
    most: int = 0


def normalized(name: str, config: TopicConfig) -> TopicConfig:
    """Returns a configuration as a topic keeps it, with clamped times.

    Raises:
        InvalidRequest: it contradicts itself.
    """
    if config.dead_letter == name:
        raise InvalidRequest("a queue can't be its own dead-letter topic")
    least, most = LEASE_MS
    return replace(
        config,
        lease_ms=min(max(config.lease_ms, least), most),
        claim_jitter_ms=min(config.claim_jitter_ms, MAX_JITTER_MS),
    )


def decide_put(
    surface: TopicSurface, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
) -> Decision:
    """Decides a PUT of a topic. `logs` has the name's current log, None if there is none. The answer is a `Configured`.
    Raises Incompatible if the topic has another type. `surface` knows what a queue hides.
    """
    (look,) = logs
    request: PutRequest = requests[0].request
    config = normalized(request.name, request.config)
    if look is not None and not look.state.ended:
        return _configure(surface, look, config, rows, now_ms)
    entries, guards = create(look, request.name, config, None, request.most, rows.counts, now_ms, ids)
    return Decision((Configured(True, config),), entries, guards)


def decide_first_write(
    logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
) -> Decision:
    """Decides a write that creates its topic. `logs` has the name's current log, None if there is none. The answer is a
    `Written`; None if the topic exists by now.
    """
    (look,) = logs
    first: FirstWrite = requests[0].request
    if look is not None and not look.state.ended:
        return Decision((None,))
    config = normalized(first.name, first.request.config)
    entries, guards = create(look, first.name, config, first.request, first.most, rows.counts, now_ms, ids)
    count = len(first.request.records)
    answer = Written(1, count, count, created=True, durable=config.durable)
    digest = key_digest(first.request)
    if digest is not None and config.idempotency_window_ms:
        guards = (*guards, put_key(entries[0].log_id, digest, answer, config, now_ms, ""))
    return Decision((answer,), entries, guards)


def create(
    old: Look | None,
    name: str,
    config: TopicConfig,
    write: WriteRequest | None,
    most: int,
    counts: Callable[[str], Sequence[int]],
    now_ms: int,
    ids: Ids,
) -> tuple[tuple[Draft, ...], tuple[Guard, ...]]:
    """Returns the entries and guards that create a topic, perhaps with its first records; the first entry is that of its
    main log.

    Args:
        old: the log that the name had; None if there was none.
        most: how many topics there may be; 0 for any number.
        counts: reads a counter (`Rows.counts`).

    Raises:
        TopicFull: the records can never fit.
        LimitReached: there are as many topics as may be.
    """
    incarnation = incarnation_of(old.config, old.state) + 1 if old is not None else 0
    plain = LogConfig(TOPICS, name, incarnation, JSON, now_ms)
    roles = {LEASES: JSON} if config.type == "queue" else {}
    row = Row(ids.log(), rules.name_companions(plain, roles, ids))
    state = LogState(touched_ms=now_ms, definition=COLUMNS, extension=TopicState(config))
    draft = Draft(row.log_id, "create", state, config=row.config)
    if write is not None:
        grown = grow(state, write.records, now_ms)
        topic = topic_of(grown)
        if config.discard == "reject" and retention.is_over(config, topic.live, topic.bytes):
            raise full(name, state, lambda: NONE, NONE)
        if config.discard == "old":
            grown = retention.enforce_caps(grown, lambda: NONE)
        times = (TimeRun(len(write.records), grown.append_time_ms),)
        draft = draft._replace(state=grown, batches=(write.records,), times=times)
    before, last = (old.row, old.state) if old is not None else (None, None)
    guards = put_counted(row, before, lambda: one_more(TOPICS, name, most, counts, ids.refused), last)
    return (draft, *rules.create_companions(row, {LEASES: TIMINGS})), guards


def _configure(surface: TopicSurface, look: Look, config: TopicConfig, rows: Rows, now_ms: int) -> Decision:
    before = topic_of(look.state).config
    name, answer = look.config.name, Configured(False, config)
    if config.type != before.type:
        raise Incompatible(f'topic "{name}" exists with another type: type={before.type}')
    if config == before:
        return Decision((answer,))
    # What has expired under the old TTL stays gone under any other.
    removed = live.removed_of(look.log_id, look.state, rows)
    hidden = partial(surface.hidden, look, rows)
    state = live.expire(look.state, now_ms, live.times_of(look.row, rows), removed, hidden)
    removed = live.removed_of(look.log_id, state, rows)
    state = replace(state, extension=replace(topic_of(state), config=config))
    if not retention.is_marked(config):
        state = replace(state, extension=replace(topic_of(state), marks=()))
    elif not retention.is_marked(before):
        state = live.mark(look.row, state, rows, removed)
    return Decision((answer,), (Draft(look.log_id, "configure", state),))
