"""The surfaces of this build. A wired process imports this, so that it knows what each surface keeps in a log's state."""

from __future__ import annotations

from headrace.log.stores import Stores
from headrace.manifest.merging import FindDead
from headrace.queues.ledger import LeaseState
from headrace.streams.values import STREAMS, StreamState
from headrace.topics.values import TOPICS, TopicState
from headrace.wal.extension import Extension

SURFACES = (STREAMS, TOPICS)
COUNTED = frozenset({TOPICS})  # those of whose names a limit says how many there may be
EXTENSIONS: tuple[type[Extension], ...] = (StreamState, TopicState, LeaseState)


def find_dead(stores: Stores) -> FindDead:
    """Returns the function that finds the removed records of a log: those of topics, since streams remove none."""
    from headrace.queues.dead import FindDeadRecords  # with all verbs: only a process that scrubs needs them

    return FindDeadRecords(stores)
