"""The surfaces of this build. A wired process imports this, so that it knows what each surface keeps in a log's state."""

from __future__ import annotations

from headrace.queues.ledger import LeaseState
from headrace.streams.values import STREAMS, StreamState
from headrace.topics.values import TOPICS, TopicState
from headrace.wal.state import Extension

SURFACES = (STREAMS, TOPICS)
COUNTED = frozenset({TOPICS})  # those of whose names a limit says how many there may be
EXTENSIONS: tuple[type[Extension], ...] = (StreamState, TopicState, LeaseState)
