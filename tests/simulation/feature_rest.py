"""The world of feature tables at rest: all is folded, back-fills end, rows that nobody needs go. Then tables are lost, and
what is read is computed again.
"""

from __future__ import annotations

from contextlib import suppress

from functions.relay.lanes import BUILD_MS
from functions.sealer.purge import purge
from functions.sealer.seal import seal
from headrace.errors import Damaged, HeadraceError, InvalidRequest, Overloaded
from headrace.features import documents
from headrace.features.documents import read_lane
from headrace.features.errors import Stopped
from headrace.features.pipeline.registry import pipeline_of
from headrace.features.restore import restore
from headrace.features.values import GetRequest
from headrace.features.values import lane as which_of
from headrace.recovery.recover import recover
from headrace.recovery.verify import verify_all
from headrace.tables.features import TABLE, MemoryFeatures
from tests.simulation.feature_model import NS, Model, SurveyedWal
from tests.simulation.feature_world import DEDUPE_MS, POISON, Actors, Process
from tests.simulation.relay_world import Broken
from tests.unit.features.backfilling import run_job, waiting_jobs
from tests.unit.features.world import rows_of

ROUNDS = 20  # passes after which a lane that is not folded never is


class Tables(Actors):
    """One run by a seed."""

    def _settle(self) -> None:
        process = Process(self.stores)
        process.api.finish(NS)
        view = process.api.registry(NS)
        self.require("registrations end by themselves", not view.state.is_open)
        root = view.registry.root_of("U")
        self.lanes = root.lanes if root is not None else self.lanes
        process.api.register(NS, {"nodes": self.nodes(self._turn | 8), "force": True})
        self._rest(process, self.model)
        self._remove_useless(process)
        self._read_everything(Process(self.stores), self.model)
        kinds = [self._rebuild, self._reuse, *([] if self.settings["keep_events_for_ms"] else [self._rewind])]
        self.random.choice(kinds)(process)

    def _rest(self, process: Process, model: Model) -> None:
        """Folds everything; before and after that reads are right, and then those of stored rows, too."""
        stores = process.api.stores
        self._read_everything(Process(stores), model)
        for number in range(self.lanes):
            which = which_of(NS, "Tx", number)
            done = any(process.fold(which).is_done for _ in range(ROUNDS))
            mark = rows_of(stores).mark(model.lanes["Tx", number][-1].log_id)
            end = model.lanes["Tx", number][-1].end
            self.require(
                "everything is folded at last", done and mark is not None and mark.folded == end, number, mark, end
            )
        self._end_backfills(process, model)
        self._check_pipelines(process)
        self._read_everything(process, model)
        self._read_everything(Process(stores), model, stale=True)

    def _check_pipelines(self, process: Process) -> None:
        wanted = pipeline_of(process.api.registry(NS).registry, "Tx")
        for number in range(self.lanes):
            head = process.api.head(which_of(NS, "Tx", number))
            found = process.api.definition_of(head).derive(read_lane).document.pipeline
            self.require("lanes have the pipeline of their registry", found == wanted, number, found, wanted)

    def _end_backfills(self, process: Process, model: Model) -> None:
        """Runs all jobs, and visits of the relay with what it asks of the folder: reads are right all the while."""
        for _ in range(ROUNDS):
            for job_id in waiting_jobs(process.stores.objects):
                try:
                    run_job(process.stores, job_id)
                except (Damaged, HeadraceError):  # a lane is another one, or its events are gone
                    self._fail(process.stores, job_id)
            self._visit(process)
            left = process.api.registry(NS).registry.building
            self.clock.advance(BUILD_MS / 1000)
            for one in process.folds.take():
                process.fold((one.name, one.role) if one.role else one.name)
            if not left:
                break
            self._read_everything(process, model)
        self.require("back-fills end by themselves", not left, left)
        for number in range(self.lanes):  # the relay hears of the end, too
            process.fold(which_of(NS, "Tx", number))

    def _read_everything(self, process: Process, model: Model, *, stale: bool = False) -> None:
        law = "at rest every read is answered"
        requests = [GetRequest(name, key) for name, keys in self.keys().items() for key in keys]
        try:
            answers = process.api.get(NS, requests)
            if stale:
                rows = process.api.get(
                    NS, requests, stale=True
                ).rows  # which name no prefix, but at rest it is this one
                answers = answers._replace(rows=rows)
        except HeadraceError as error:
            raise Broken(law, error) from error
        errors = [
            one
            for request, one in zip(requests, answers.rows, strict=True)
            if isinstance(one, Exception)
            and not (self._is_poisoned and isinstance(one, Stopped) and request.table == POISON[0])
        ]
        self.require(law, not errors, errors)
        model.answered(requests, answers, self.calls, {})

    def _remove_useless(self, process: Process) -> None:
        """Lets time pass: rows that nobody needs any longer go."""
        for seconds in (301, 86_401):
            self.clock.advance(seconds)
            for number in range(self.lanes):
                for _ in range(5 * ROUNDS):
                    done = process.fold(which_of(NS, "Tx", number))
                    if not done.due_ms or done.due_ms > self.clock.now_ms():
                        break
        ended = [log_id for log_id, log in self.model.logs.items() if log.ended is not None]
        for log_id in ended * ROUNDS:
            purge(process.parts, log_id)
        kept, living = self._kept(), set[tuple[str, str]]()
        for number in range(self.lanes):
            head = process.api.head(which_of(NS, "Tx", number))
            tables = process.api.pipelines_of(head, head.state.next_offset).last.tables.values()
            living |= {(head.log_id, documents.generation_of(one.name, one.generation, head)) for one in tables}
        law = "rows that nobody needs go"
        self.require(law, {key[:2] for key in kept.kept} <= living, kept.kept.keys(), living)
        self.require(law, kept.marks.keys() <= {log_id for log_id, _ in living}, kept.marks, living)
        left = [one for one in kept.marks.values() if one.builds or one.dropped]
        self.require("a back-fill leaves nothing behind", not left, left)

    def _rebuild(self, process: Process) -> None:
        """All tables are lost, and computed again from the bucket."""
        self._seal_all(process)
        again, model = self._recover(MemoryFeatures())
        for lane, (log,) in model.lanes.items():
            before = [one for one in self.model.lanes[lane][-1].events if one.offset >= log.floor]
            self.require("the bucket has everything that was sealed", log.events == before, lane, log.events, before)
        self._resume(again, model)

    def _reuse(self, process: Process) -> None:
        """All tables but the rows are lost, which then have events that are lost; so are registrations, of some."""
        self._seal_all(process)
        if self.random.random() < 0.5:
            process.api.register(NS, {"nodes": self.nodes(self.random.randrange(32) | 8), "force": True})
            for log_id in self.model.logs:
                seal(process.parts, log_id, force=True)
        for _ in range(3):
            with suppress(InvalidRequest, Overloaded):
                process.api.push(NS, "Tx", self._events())
        for number in range(self.lanes):
            process.fold(which_of(NS, "Tx", number))
        again, model = self._recover(self._kept())
        self._resume(again, model)

    def _rewind(self, process: Process) -> None:
        """The rows are restored as they were once; if tables were back-filled, all rows are lost, and what is repaired."""
        kept = self._kept()
        has_backfilled = any(one.is_backfilled for one in process.api.registry(NS).registry.tables.values())
        kept.kept, kept.marks = ({}, {}) if has_backfilled else (dict(one) for one in self._snapshot)
        restore(process.stores, repair=True)
        self.require("what is repaired stays so", not (left := restore(process.stores, repair=False)), left)
        self._resume(Process(process.stores), self.model)

    def _seal_all(self, process: Process) -> None:
        for log_id in self._logs():
            seal(process.parts, log_id, force=True)

    def _recover(self, rows: MemoryFeatures) -> tuple[Process, Model]:
        wal = SurveyedWal({TABLE: rows})
        stores = self._stores(wal, self.stores.objects)
        recover(stores)
        damage = [one for one in verify_all(stores).findings if one.kind != "bucket.orphan"]
        self.require("a recovery leaves no damage", not damage, damage)
        model, again = Model(self, stores, DEDUPE_MS), Process(stores)
        for number in range(self.lanes):
            model.recover(("Tx", number), again.api)
        wal.heard = model.heard
        return again, model

    def _resume(self, process: Process, model: Model) -> None:
        self._rest(process, model)
        for _ in range(4):
            self.clock.advance(0.7)
            with suppress(InvalidRequest, Overloaded):
                process.api.push(NS, "Tx", self._events())
        self._rest(process, model)

    def _judge(self) -> None:
        self.model.at_rest()
