"""Recovery: writes what the plan says. It may be run again, also after a crash at any step."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.clock import Budget, Threads
from headrace.errors import Damaged, HeadraceError, StoreError
from headrace.log.commit import Attempt
from headrace.log.context import Context
from headrace.log.seam import AnySurface
from headrace.log.stores import Stores
from headrace.manifest import manifest as manifests
from headrace.manifest.manifest import Description, Manifest
from headrace.manifest.store import ManifestStore, NewestLook
from headrace.objects import keys
from headrace.recovery.counts import check_counts
from headrace.recovery.plan import Plan, plan
from headrace.recovery.report import LogRecovered, Progress, RecoverReport, no_progress
from headrace.recovery.survey import ALONE, payload_offset, survey
from headrace.tables.catalog import PutRow
from headrace.tables.watermarks import Watermark
from headrace.wal import Committed
from headrace.wal.state import Entry, LogConfig, incarnation_of

_BUDGET_MS = 30_000


def recover(
    stores: Stores,
    *,
    dry_run: bool = False,
    rewound: bool = False,
    progress: Progress = no_progress,
    threads: Threads = ALONE,
) -> RecoverReport:
    """Rebuilds the catalog, the watermarks and the end of every log from the bucket, where they are missing or wrong. Then
    rebuilds what surfaces derive from the states of logs, and counts the names whose number is limited.

    No writer may run meanwhile. A second run without `rewound` changes nothing.

    Args:
        dry_run: whether to report what would be done, and write nothing.
        rewound: whether the tables were restored to an earlier time. A log with unpublished entries then looks intact,
            but later records may be lost; so its incarnation is raised, too, on each run.
        threads: with which the facts are read; logs are rebuilt one after the other.

    Raises:
        StoreError: the facts could not be read, and nothing was written; or names could not be counted at the end. If a
            store fails in between, only that log is refused; so is one that needs a generation when the facts are half a
            day old, since the sealer may have gone on meanwhile. Names are then not counted: their rows may not be all
            there yet, and a count that is written late would outlast the right one of the next run.
    """
    # Of no log: the answer sets a wrong clock right, before an age is measured by it.
    stores.watermarks.get("recovery")
    look = NewestLook.begin(stores.clock)
    logs = survey(stores, progress, threads)
    plans = list(plan(logs, rewound=rewound, now_ms=stores.clock.now_ms(), request_ids=stores.request_ids))
    run = _Run(stores, look, dry_run, {one.log_id: one.config for one in logs if one.config is not None})
    plans.sort(
        key=lambda one: one.facts.config is None or not one.facts.config.role
    )  # a name comes after its companions
    found = []
    for number, one in enumerate(plans):
        progress("recovering", number, len(plans))
        found.append(run.carry_out(one))
    progress("recovering", len(plans), len(plans))
    derived = stores.derived(stores, not dry_run)
    counters = [] if run.is_cut else check_counts(stores, repair=not dry_run)
    return RecoverReport(dry_run, tuple(found), tuple(counters), tuple(derived))


class _Run:
    """The writes of one run.

    Attributes:
        is_cut: whether a store failed: the recovery must be run again.
    """

    def __init__(self, stores: Stores, look: NewestLook, dry_run: bool, configs: Mapping[str, LogConfig]) -> None:
        self._stores = stores
        self._configs = configs
        self._look = look
        self._dry_run = dry_run
        self.is_cut = False
        self._manifests = ManifestStore(stores.objects)

    def carry_out(self, plan: Plan) -> LogRecovered:
        """Writes a plan (generation, producers, entry with row, watermark), or nothing in a dry run. Returns what was or
        would be written; `refused` if a store failed. A crash may interrupt this order anywhere.
        """
        wrote: list[str] = []
        status, reason = plan.status, plan.reason
        try:
            if status not in ("refused", "superseded", "lost"):
                self._write(plan, wrote)
        except (HeadraceError, StoreError) as exc:
            status, reason = "refused", f"{type(exc).__name__}: {exc}"
            self.is_cut |= not isinstance(exc, Damaged)
        facts, config, row = plan.facts, plan.facts.config, plan.facts.row_damage
        named = config or row
        if status in ("intact", "gone") and wrote:
            status = "repaired" if status == "intact" else status
        offset = payload_offset(facts)
        is_behind = offset is not None and bool(plan.lost) and offset >= plan.state.next_offset
        return LogRecovered(
            log_id=facts.log_id,
            surface=named.surface if named is not None else "",
            name=config.title if config is not None else row.name if row is not None else "",
            status=status,
            end_offset=plan.state.next_offset,
            incarnation=incarnation_of(config, plan.state) if config is not None else 0,
            wrote=tuple(wrote),
            lost=plan.lost if status != "refused" else (),
            evidence_offset=offset if is_behind else None,
            reason=reason,
        )

    def _write(self, plan: Plan, wrote: list[str]) -> None:
        manifest: Manifest | None = plan.facts.manifest
        if plan.publish and plan.entry is not None:
            manifest = self._publish(plan, plan.entry)
            wrote.append("generation")
        if plan.forget_producers and not self._dry_run:
            while not self._stores.producers.purge(plan.facts.log_id):
                pass  # a log may have had any number of producers
        if plan.entry is not None:
            self._commit(plan, plan.entry)
            wrote.append("entry")
        if plan.row is not None or plan.mark_ended:
            if plan.row is None and plan.facts.row is not None and not self._dry_run:
                self._stores.mark_ended(plan.facts.row, plan.state)
            wrote.append("row")
        if self._set_watermark(plan, manifest):
            wrote.append("watermark")

    def _publish(self, plan: Plan, entry: Entry) -> Manifest:
        config, log_id = plan.facts.config, entry.log_id
        assert config is not None
        known = plan.facts.manifest
        before = self._manifests.load(log_id, known.generation) if known is not None else None
        following = manifests.successor(
            before,
            log_id=log_id,
            config=config,
            segments=(),
            last_entry=entry,
            sealed_page=None,
            now_ms=self._stores.clock.now_ms(),
        )
        if self._dry_run:
            return following
        if before is None:
            # As the sealer does: a companion that is described alone would be refused when its name's row is lost.
            main = self._configs.get(config.main)
            described = ([Description(config.main, main)] if main is not None else []) + [Description(log_id, config)]
            for one in described:
                self._stores.objects.create(keys.description(one.log_id), msgspec.json.encode(one))
        if not self._manifests.publish(following, self._look):
            raise StoreError("somebody else published meanwhile; run the recovery again, alone")
        return following

    def _commit(self, plan: Plan, entry: Entry) -> None:
        """Commits the entry of a plan together with its catalog row; does nothing in a dry run. Raises StoreError if
        somebody else has written meanwhile.
        """
        if self._dry_run:
            return
        stores, row = self._stores, plan.facts.row
        guards = [PutRow(plan.row, row.log_id if row is not None else None)] if plan.row is not None else []
        context = Context(stores, AnySurface())
        attempt = Attempt(context, Budget(stores.clock, _BUDGET_MS))
        outcome = attempt.put(entry, guards, context.pictures.read_time())
        if not isinstance(outcome, Committed):
            raise StoreError("somebody else wrote meanwhile; run the recovery again, alone")

    def _set_watermark(self, plan: Plan, manifest: Manifest | None) -> bool:
        """Sets the watermark to that of `manifest`; for a purged log, so high that no late writer can prove that its entry
        counts. Writes nothing in a dry run. Returns False if it was right already. Raises StoreError if somebody else has
        moved it meanwhile.
        """
        marks, log_id, standing = self._stores.watermarks, plan.facts.log_id, plan.facts.watermark
        wanted = Watermark()
        if plan.facts.tombstone is not None:
            last = plan.entry or plan.facts.newest
            if last is None or standing.end_slot >= last.slot:
                return False
            wanted = Watermark(standing.generation + 1, last.slot, plan.state.next_offset, plan.state.total_bytes)
        elif manifest is not None:
            wanted = Watermark(manifest.generation, manifest.end_slot, manifest.end_offset, manifest.sealed_bytes)
        if wanted == standing:
            return False
        if not self._dry_run:
            if wanted.generation <= standing.generation:  # it is wrong, not behind
                marks.delete(log_id)
            if wanted.generation:
                fields = (wanted.generation, wanted.end_slot, wanted.end_offset, wanted.sealed_bytes)
                if not marks.publish(log_id, *fields) and marks.get(log_id).end_slot < wanted.end_slot:
                    raise StoreError("the watermark moved meanwhile; run the recovery again, alone")
        return True
