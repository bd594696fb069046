"""The removed records of a topic as its manifest states them: what may be scrubbed, since no recovery brings it back."""

from __future__ import annotations

from headrace.log import join
from headrace.log.requests import Head
from headrace.log.stores import Stores
from headrace.manifest.manifest import Manifest
from headrace.manifest.merging import DeadRecords
from headrace.queues.verbs import Queues
from headrace.topics.runs import NONE, Runs
from headrace.topics.values import LEASES, TOPICS, topic_of

_MARGIN_MS = 3_600_000  # clocks of readers may be late


class FindDeadRecords:
    """The function that finds the removed records of a log, with its caches. One object serves a process."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._manifests = stores.manifests()
        self._queues = Queues(stores)

    def __call__(self, manifest: Manifest, now_ms: int) -> DeadRecords:
        """Returns the removed records of a log; none if it is not the main log of a topic.

        A record is removed if it is below the floor, was deleted or, in a queue, is done; or has expired an hour ago. All
        by what the manifests say, and the TTL also as it is now: a log that is recovered from its published part still has
        none of these.
        """
        config, state = manifest.config, manifest.state
        if config.surface != TOPICS or config.role:
            return DeadRecords()
        head = Head(manifest.log_id, config, state, None)
        gone = self._queues.removed(head).union(self._done(head))
        return DeadRecords(tuple(gone.add(0, state.floor)), self._expired_ms(head, now_ms))

    def _expired_ms(self, head: Head, now_ms: int) -> int | None:
        """Returns the time before which all records have expired, by the TTL that is published and by the present one: a
        PUT may have raised it since, and records that live by that one are to be kept.
        """
        ttl_ms = topic_of(head.state).config.ttl_ms
        newest = self._stores.wal.newest(head.log_id) if ttl_ms else None
        ttls_ms = (ttl_ms, topic_of(newest.state).config.ttl_ms if newest is not None else ttl_ms)
        return now_ms - max(ttls_ms) - _MARGIN_MS if all(ttls_ms) else None

    def _done(self, jobs: Head) -> Runs:
        """Returns the jobs that are done; none of a topic that is no queue."""
        companion = next((one for one in jobs.config.companions if one.role == LEASES), None)
        if companion is None:
            return NONE
        leases = join.newest_manifest(self._stores, self._manifests, companion.log_id)
        if leases is None:
            return NONE
        return self._queues.done(jobs, Head(companion.log_id, leases.config, leases.state, None))
