"""The steps that mutants put in place of those of topics and queues, as `mutated_steps` has those of the log."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from headrace.errors import StoreError
from headrace.log.commit import Attempt
from headrace.log.control import Asked
from headrace.log.requests import Head
from headrace.queues import decide as deciding
from headrace.queues import ledger, surface
from headrace.queues import projection as projections
from headrace.queues import verbs as queue_verbs
from headrace.queues.dead_letter import Burial
from headrace.queues.events import Ack
from headrace.queues.ledger import LeaseState, Ledger
from headrace.queues.verbs import Queues
from headrace.tables.counters import Count
from headrace.tables.producers import PutKey
from headrace.topics import diff, quota, retention, verbs
from headrace.topics.errors import NotEmpty
from headrace.topics.runs import NONE, Runs
from headrace.topics.values import LEASES, TopicState, topic_of
from headrace.wal import Committed, Outcome
from tests.simulation.mutant import Mutant


def claims_overwrite(raw: dict[str, Any]) -> None:
    """An event of a lease log takes its slot, whatever is there."""
    wal = raw["wal"]
    whole = wal.commit

    def commit(entry: Any, guards: Any = (), read_ms: Any = None) -> Any:
        if isinstance(entry.state.extension, LeaseState) and entry.kind == "data":
            wal.remove(entry.log_id, [entry.slot])
        return whole(entry, guards, read_ms)

    wal.commit = commit


_advance = projections.advance


def advance_by_own_clock(projection: Any, now_ms: int) -> Any:
    """The reader's clock is the time, be it before the last event."""
    return _advance(projection._replace(time_ms=min(projection.time_ms, now_ms)), now_ms)


def ack_after_the_deadline(queue: Any, request: Any) -> Any:
    """A worker holds what it held when the last event came."""
    done = deciding._held(queue.ledger._stored, request)
    if done:
        queue.ledger.add(Ack(at=queue.ledger.at, node=request.node, jobs=Runs.of_offsets(done).flat()))
    return deciding._settled(queue, request, done)


_store = Ledger._store


def store_what_was(self: Ledger, *given: Any) -> Any:
    """The snapshot lacks the events of its own entry."""
    now, self.now = self.now, self._stored
    try:
        return _store(self, *given)
    finally:
        self.now = now


_given_back = projections._given_back


def give_back_anew(projection: Any, node: str, jobs: Any, ready_ms: int) -> Any:
    """What is given back was never delivered."""
    given = _given_back(projection, node, jobs, ready_ms)
    back = [one._replace(deliveries=0) if one not in projection.back else one for one in given.back]
    return given._replace(back=projections._sorted(back))


_bury = Queues._bury
_burial = Burial.decide


class Halves:
    """A burial in two commits: the records first, then the event."""

    def __init__(self) -> None:
        self.is_second = False

    def decide(self, burial: Burial, *asked: Any) -> Any:
        """Decides one half."""
        whole = _burial(burial, *asked)
        if len(whole.entries) < 2:
            return whole
        if self.is_second:
            return whole._replace(entries=whole.entries[:1], guards=())
        return whole._replace(entries=whole.entries[1:], objects=())

    def bury(self, queues: Queues, name: str, topic: str) -> int:
        """Moves jobs."""
        self.is_second = False
        moved = _bury(queues, name, topic)
        self.is_second = True
        return _bury(queues, name, topic) if moved else 0


HALVES = Halves()


def bury_in_halves(self: Queues, name: str, topic: str) -> int:
    """One commit for the records, one for the event."""
    return HALVES.bury(self, name, topic)


def decide_half(self: Burial, *asked: Any) -> Any:
    """As the half says whose turn it is."""
    return HALVES.decide(self, *asked)


_raise_floor = retention._raise_floor


def raise_floor_over_holes(state: Any, topic: Any, floor: int, removed: Any) -> Any:
    """The floor is behind the last record that was removed."""
    return _raise_floor(state, topic, max(floor, removed.within(floor, state.next_offset).end), removed)


_remove = retention.remove


def remove_as_lost(*given: Any) -> Any:
    """A delete that moves the floor is told to readers as a loss."""
    removal = _remove(*given)
    topic = replace(topic_of(removal.state), evict_floor=removal.state.floor)
    return removal._replace(state=replace(removal.state, extension=topic))


def caps_with_the_dead(state: Any, removed: Any, hidden: Any = lambda: NONE) -> Any:
    """Removed records fill a cap, too."""
    config = topic_of(state).config
    if not 0 < config.cap_records < state.next_offset - state.floor:
        return _enforce_caps(state, removed, hidden)
    return retention.lose(state, state.next_offset - config.cap_records, removed, "cap", hidden())


_enforce_caps = retention.enforce_caps
_put = Attempt.put


def put_key_later(self: Attempt, entry: Any, guards: Any, read: Any) -> Outcome:
    """The row of a key is written when its records are."""
    keys = [guard for guard in guards if isinstance(guard, PutKey)]
    outcome = _put(self, entry, [guard for guard in guards if guard not in keys], read)
    if keys and isinstance(outcome, Committed):
        with suppress(StoreError):
            self._context.stores.sessions.commit(keys)
    return outcome


_plan = diff.plan


def plan_without_gap(*given: Any) -> Any:
    """Readers do not learn of what they missed."""
    return _plan(*given)._replace(gap=None)


_lost_since = ledger.lost_since


def lost_nothing(projection: Any, jobs: Any) -> Any:
    """Offsets are those of the jobs log, whatever became of it."""
    return _lost_since(projection, jobs) if projection.incarnation < 0 else None


def keys_stay(raw: dict[str, Any]) -> None:
    """What is forgotten of a log's writers is not forgotten of their keys."""
    producers = raw["producers"]
    whole = producers.purge

    def purge(log_id: str) -> Any:
        kept = dict(producers.keys)
        try:
            return whole(log_id)
        finally:
            producers.keys = kept

    producers.purge = purge


_decide_erase = verbs.decide_erase


def decide_erase_by_offset(logs: Any, requests: Any, *rest: Any) -> Any:
    """What is to be deleted is deleted from whichever topic has the name."""
    (look,), request = logs, requests[0].request
    found = Head(look.log_id, look.config, look.state, None)
    return _decide_erase(logs, (Asked(request._replace(found=found)),), *rest)


def remove_what_was_empty(self: verbs.Topics, name: str, *, if_empty: bool = False) -> bool:
    """A topic is looked at, and then deleted, whatever it holds by then."""
    if if_empty and self.view(name, touch=False).live:
        raise NotEmpty(name)
    return _remove_topic(self, name)


_remove_topic = verbs.Topics.remove


def any_lease_log(self: Queues, name: str, jobs: Any) -> Any:
    """The lease log is that of whichever queue has the name now."""
    return self.head((name, LEASES))


MUTANTS = (
    Mutant("claim without compare-and-set", "two claimers", adapter=claims_overwrite),
    Mutant(
        "a lease ends by the reader's clock",
        "skewed clocks: one time line for all",
        (ledger, "advance", advance_by_own_clock),
    ),
    Mutant("ack that ignores the deadline", "an ack meets a reclaim", (surface, "ack", ack_after_the_deadline)),
    Mutant("snapshot one event behind", "a snapshot and its entry", (Ledger, "_store", store_what_was)),
    Mutant(
        "deliveries forgotten when jobs are given back",
        "a job is delivered without end",
        (projections, "_given_back", give_back_anew),
    ),
    Mutant(
        "dead letter in two commits",
        "a dead letter twice, or lost",
        (Queues, "_bury", bury_in_halves),
        (Burial, "decide", decide_half),
    ),
    Mutant(
        "floor over a record that lives",
        "deletes at the front of a topic",
        (retention, "_raise_floor", raise_floor_over_holes),
    ),
    Mutant("delete told as a loss", "deletes are silent", (retention, "remove", remove_as_lost)),
    Mutant(
        "caps count the dead",
        "deletes in a topic with a cap",
        (retention, "enforce_caps", caps_with_the_dead),
    ),
    Mutant("loss that is not told", "a reader behind a cap", (diff, "plan", plan_without_gap)),
    Mutant("key after its records", "one key, two writers", (Attempt, "put", put_key_later)),
    Mutant(
        "jobs with another queue's leases",
        "a queue is created again under a reader",
        (Queues, "_leases_of", any_lease_log),
    ),
    Mutant(
        "leases of jobs that were lost",
        "a recovery leaves the jobs log shorter than its leases say",
        (ledger, "lost_since", lost_nothing),
        (queue_verbs, "lost_since", lost_nothing),
    ),
    Mutant("keys of writes that were lost", "offsets of lost records come again", adapter=keys_stay),
    Mutant(
        "delete in whichever topic has the name",
        "a topic is created again under a delete",
        (verbs, "decide_erase", decide_erase_by_offset),
    ),
    Mutant(
        "looked at, then deleted",
        "an append meets the delete of an empty topic",
        (verbs.Topics, "remove", remove_what_was_empty),
    ),
    Mutant(
        "counted beyond the limit",
        "two writers, and room for one",
        (Count, "check", lambda self, tables: None),
    ),
    Mutant(
        "bytes that nobody reserved",
        "two writers, and room for one",
        (quota, "reserve", lambda looks, decision, *rest: decision),
    ),
    Mutant(
        "queue recovered as a topic",
        "only the row of a queue is left",
        (TopicState, "begin", classmethod(lambda cls, config, state: state)),
    ),
)
