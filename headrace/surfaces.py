"""The surfaces of this build. A wired process imports this, so that it knows what each surface keeps in a log's state."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.features.values import FEATURES, LaneState, RegistryState
from headrace.log.stores import Stores
from headrace.manifest.merging import FindDead
from headrace.queues.ledger import LeaseState
from headrace.routers.values import ROUTERS
from headrace.streams.values import STREAMS, StreamState
from headrace.topics.values import TOPICS, TopicState
from headrace.wal.extension import Extension

SURFACES = (STREAMS, TOPICS, FEATURES)
COUNTED = frozenset({TOPICS, ROUTERS})  # what names a limit says how many there may be of
EXTENSIONS: tuple[type[Extension], ...] = (StreamState, TopicState, LeaseState, LaneState, RegistryState)


def derived(stores: Stores, repair: bool) -> Sequence[str]:
    """Checks what surfaces derive from the states of their logs: the rows of routers, and the pipelines of lanes. Returns
    what is wrong.
    """
    from headrace.features import restore as lanes  # with all verbs: only recoveries and checks need them
    from headrace.routers import restore as routers

    found = [*routers.restore(stores, repair)]
    return found + lanes.restore(stores, repair) if FEATURES in stores.surfaces else found


def find_dead(stores: Stores) -> FindDead:
    """Returns the function that finds the removed records of a log: those of topics, since streams remove none."""
    from headrace.queues.dead import FindDeadRecords  # with all verbs: only a process that scrubs needs them

    return FindDeadRecords(stores)
