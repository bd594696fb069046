"""Gathers facts about feature tables: how far lanes are folded, registrations and back-fills that are under way, and jobs
that failed. It only reads, a bounded number of rows and objects.
"""

from __future__ import annotations

from itertools import islice

from headrace import jobs
from headrace.features.register import Registrations
from headrace.features.values import FEATURES, is_registry, registry_name
from headrace.log.seam import which_of
from headrace.log.stores import Stores
from headrace.objects import keys
from headrace.wal.state import LogConfig
from operators.doctor.facts import FailedJobFacts, FeatureFacts, LaneFacts, RegistryFacts
from operators.doctor.following import attempt
from operators.stores import threads

MAX_LANES = 200
MAX_JOB_OBJECTS = 2_000
_RECENT_MS = 24 * 3_600_000
_ENDED = keys.job_ended("").rpartition("/")[2]


class Features:
    """A gatherer of these facts about one deployment."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._log = Registrations(stores)

    def look(self) -> FeatureFacts:
        """Gathers and returns all facts; what could not be asked is an error text among them."""
        found, logs_error = attempt(self._logs)
        lanes, registries = found or ((), ())
        failed, jobs_error = attempt(self._failed)
        return FeatureFacts(lanes, registries, logs_error, failed or (), jobs_error)

    def _logs(self) -> tuple[tuple[LaneFacts, ...], tuple[RegistryFacts, ...]]:
        rows = self._stores.catalog.living(FEATURES, limit=MAX_LANES)
        logs = [log.config for row in rows for log in row.logs][:MAX_LANES]
        registries = [config.name.removesuffix(registry_name("")) for config in logs if is_registry(config.name)]
        lanes = [config for config in logs if not is_registry(config.name)]
        return tuple(threads().map(self._lane, lanes)), tuple(threads().map(self._registry, registries))

    def _lane(self, config: LogConfig) -> LaneFacts:
        found, error = attempt(lambda: self._folded(config))
        return found or LaneFacts(config.title, error=error)

    def _folded(self, config: LogConfig) -> LaneFacts:
        log, which = self._log, which_of(config.name, config.role)
        head = log.head(which)
        mark = log.mark_of(head)
        folded = max(mark.folded if mark is not None else 0, head.state.floor)
        waited_ms = 0
        if folded < head.state.next_offset:
            records = log.records(which, folded, max_records=1, max_bytes=1).records
            waited_ms = self._stores.clock.now_ms() - records[0].time_ms if records else 0
        stops = [one for one in mark.stopped if one.generation in mark.generations] if mark is not None else []
        stopped = tuple(f"{one.generation.partition('.')[0]}: {one.reason}" for one in stops)
        return LaneFacts(config.title, waited_ms, stopped)

    def _registry(self, namespace: str) -> RegistryFacts:
        found, error = attempt(lambda: self._under_way(namespace))
        return found or RegistryFacts(namespace, error=error)

    def _under_way(self, namespace: str) -> RegistryFacts:
        log, now_ms = self._log, self._stores.clock.now_ms()
        view = log.registry(namespace)
        open_ms = None
        if view.state.is_open:
            _, newest = log.newest(registry_name(namespace))
            open_ms = now_ms - newest.committed_ms
        building = view.registry.building.items()
        return RegistryFacts(
            namespace, open_ms, {table: now_ms - (keys.made_ms(one.job_id) or now_ms) for table, one in building}
        )

    def _failed(self) -> tuple[FailedJobFacts, ...]:
        objects = self._stores.objects
        since = f"{keys.JOBS}{self._stores.clock.now_ms() - _RECENT_MS:013d}"
        found = islice(objects.list(keys.JOBS, after=since), MAX_JOB_OBJECTS)
        ended = [key.split("/")[1] for key in found if key.endswith(f"/{_ENDED}")]
        seen = threads().map(lambda job_id: jobs.status(objects, job_id), ended)
        return tuple(
            FailedJobFacts(job_id, status.kind, status.reason)
            for job_id, status in zip(ended, seen, strict=True)
            if status is not None and status.state == "failed"
        )
