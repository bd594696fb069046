"""The laws of a recovery, judged when it is over and nobody has written yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headrace.errors import Gone, HeadraceError, StoreError
from headrace.log.requests import At
from headrace.recovery.recover import recover
from headrace.recovery.report import Finding, LogRecovered, RecoverReport
from headrace.recovery.verify import verify_all
from headrace.streams.values import STREAMS
from headrace.wal.state import Cursor
from tests.simulation.log_model import LogModel
from tests.simulation.process import Process
from tests.simulation.rewind import Before
from tests.simulation.tables import all_tables
from tests.simulation.world import World


class Aftermath:
    """Judges one recovery. That each log is what the model holds is judged as its entries are written, and by reads."""

    def __init__(self, world: World, before: dict[str, Before], report: RecoverReport, tries: int) -> None:
        self._world = world
        self._before = before
        self._report = {log.log_id: log for log in report.logs}
        self._tries = tries

    def judge(self) -> None:
        """Every law, in no time and without a fault."""
        world = self._world
        was, world.calm = world.calm, True
        try:
            self._refusals()
            self._names()
            self._incarnations()
            self._losses_are_told()
            self._forks()
            self._cursors()
            world.followers.at_rest()
            self._again()
            verified(world, but=world.model.refused)
        finally:
            world.calm = was

    def _law(self, law: str) -> str:
        self._world.checked[law] += 1
        return law

    def _refusals(self) -> None:
        """Only a log that had ended, or to which no name led, may be refused."""
        law, model = self._law("a recovery refuses no log that lives"), self._world.model
        refused = {log_id for log_id, log in self._report.items() if log.status == "refused"}
        for log_id in sorted(refused - model.over):
            if log_id in self._before and not self._before[log_id].is_named:
                continue
            self._world.broken(law, f"{log_id[-8:]} {self._report[log_id].reason}")
        self._world.model.refused |= refused

    def _names(self) -> None:
        """A log that was published, and had not ended, lives under its name."""
        law, model = self._law("what was published remains"), self._world.model
        for log_id, before in self._before.items():
            name = before.log.config.name
            if before.must_stand and not model.is_named(before.log):
                self._world.broken(law, f"{name} is not {log_id[-8:]} any more")
            if before.must_stand and before.log.now.ended:
                self._world.broken(law, f"{name} has ended")

    def _incarnations(self) -> None:
        """Where records are lost, their offsets come again under a higher incarnation only."""
        law = self._law("lost offsets come again under a higher incarnation")
        for log in self._named():
            before = self._before.get(log.log_id)
            if before is None or log.now.next_offset >= before.view.next_offset or log.now.ended:
                continue
            if log.log_id in self._world.model.refused:
                continue  # an operator was told to look at it
            if log.incarnation <= before.incarnation:
                text = f"{log.config.name} lost records from {log.now.next_offset} to {before.view.next_offset}"
                self._world.broken(law, f"{text}, incarnation {log.incarnation} was {before.incarnation}")

    def _losses_are_told(self) -> None:
        if self._tries > 1:
            return  # an earlier run may have told it to nobody
        law = self._law("a recovery says what it lost")
        for log in self._named():
            before, said = self._before.get(log.log_id), self._report.get(log.log_id)
            if log.now.ended or before is None or log.now.next_offset >= before.view.next_offset:
                continue
            if not _tells(said):
                self._world.broken(law, f"{log.config.name} lost records: {said}")

    def _forks(self) -> None:
        """A log that is read by forks counts them."""
        law, model = self._law("forks are counted"), self._world.model
        for fork in self._named():
            source = fork.config.source
            if source is None or not fork.now.holds_source or fork.gone:
                continue
            log = model.logs.get(source.log_id)
            if log is None or not log.now.forks or log.gone:
                self._world.broken(law, f"{fork.log_id[-8:]} holds {source.log_id[-8:]}, which does not know")

    def _cursors(self) -> None:
        """Older cursors are accepted up to where the recovery took the log up, and refused beyond."""
        law = self._law("older cursors hold up to the recovered end")
        logs = Process(self._world, "observer", "api").logs
        for log in self._named():
            if log.now.ended or self._expires(log) or log.log_id in self._world.model.refused:
                continue
            if log.config.surface != STREAMS:
                continue  # a seq says nothing of incarnations
            for incarnation, recovery in zip(log.incarnations, log.now.recoveries, strict=False):
                for position, right in ((recovery.at, True), (recovery.at + 1, False)):
                    cursor = Cursor(incarnation, position)
                    try:
                        logs.read(log.config.name, At(cursor), touch=False)
                        accepted = True
                    except Gone:
                        accepted = False
                    except (HeadraceError, StoreError) as exc:
                        self._world.broken(law, f"{log.config.name} {cursor}: {exc!r}")
                    if accepted != right and not self._inherited(log, cursor):
                        self._world.broken(law, f"{log.config.name} {cursor} accepted={accepted}")

    def _inherited(self, log: LogModel, cursor: Cursor) -> bool:
        return any(
            one.incarnation == cursor.incarnation and cursor.position <= one.through for one in log.config.lineage
        )

    def _expires(self, log: LogModel) -> bool:
        return log.config.ttl_ms is not None or log.config.expires_at_ms is not None

    def _again(self) -> None:
        """A second run changes nothing."""
        world, law = self._world, self._law("a second recovery changes nothing")
        tables, bucket = all_tables(world.raw), dict(world.objects._objects)
        again = recover(Process(world, "observer", "operator").stores)
        if again.changed:
            self._world.broken(law, f"{[log for log in again.logs if log.wrote]} {again.counters} {again.derived}")
        if (tables, bucket) != (all_tables(world.raw), world.objects._objects):
            self._world.broken(law, "it says nothing, and tables or bucket changed")

    def _named(self) -> Iterator[LogModel]:
        """Logs that a name stands for, companions included."""
        yield from filter(self._world.model.is_named, list(self._world.model.logs.values()))


def verified(world: World, *, but: set[str], unfound: Counter[str] | None = None) -> None:
    """`verify` finds no error, but of some logs, and but that forks which no recovery found, `unfound` of each log, are not
    counted.
    """
    law = "verify finds no error"
    world.checked[law] += 1
    found = verify_all(Process(world, "observer", "operator").stores).findings
    errors = [one for one in found if one.severity == "error" and one.log_id not in but]
    errors = [one for one in errors if not (unfound and _is_of_forks(one, unfound[one.log_id]))]
    if errors:
        world.broken(law, str(errors))


def _is_of_forks(finding: Finding, unfound: int) -> bool:
    """Returns whether a log is said to count too few forks, and counts all but `unfound` of them."""
    if finding.kind != "fork.uncounted":
        return False
    counted = int(finding.found) if finding.found.isdigit() else 0  # a purged one counts none
    return int(finding.expected) <= counted + unfound


def _tells(said: LogRecovered | None) -> bool:
    return said is not None and bool({"unpublished tail", "unpublished log"} & set(said.lost))
