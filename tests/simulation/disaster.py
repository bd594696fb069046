"""A disaster and its operator: every process dies, tables go back in time or are lost, and `recover` runs until it is done.

As the manual asks, nobody writes from the disaster to the end of the recovery: what the network still held has arrived, or
is lost, and processes start when all is over. The recovery itself meets the weather of the run.
"""

from __future__ import annotations

from headrace.errors import HeadraceError, StoreError
from headrace.recovery.recover import recover
from headrace.recovery.report import RecoverReport
from tests.simulation.aftermath import Aftermath
from tests.simulation.faults import Dice
from tests.simulation.outside import check_all
from tests.simulation.plan import SECOND
from tests.simulation.process import Process
from tests.simulation.rewind import rewind
from tests.simulation.scheduler import Killed
from tests.simulation.tables import put_back
from tests.simulation.waiting import Event
from tests.simulation.world import Running, World

TRIES = 5  # the last of them without a fault
PEACE = 60 * SECOND  # to the next one: an incarnation is a time in seconds, of clocks that differ
SLOT = "operator"


class Operator:
    """Runs one disaster, from the last breath of the processes to the first of their successors."""

    def __init__(self, world: World, running: Running) -> None:
        self._world = world
        self._running = running
        self._dice: Dice = running.dice
        self._disaster = next(one for one in world.plan.disasters if one.op_id == running.op.id)

    def disaster(self) -> None:
        """All of it."""
        world = self._world
        world.scheduler.sleep(max(0, world.peace_until - world.scheduler.now))
        world.outage = Event(world.scheduler)
        for process in list(world.slots.values()):
            process.crash()
        world.settle_network(self._dice)
        self._replace_tables()
        before = rewind(world)
        world.model.recovering = True
        report, tries = self._recover()
        world.limits.recovered()
        world.settle_network(self._dice)
        Aftermath(world, before, report, tries).judge()
        self._set_aside(report)
        world.model.recovering = False
        check_all(world, self._running)
        world.backups.begin_anew()
        world.peace_until = world.scheduler.now + PEACE
        outage, world.outage = world.outage, None
        outage.set()

    def _replace_tables(self) -> None:
        world = self._world
        world.backups.pass_by(world.scheduler.now)
        for table, moment in self._disaster.tables:
            copy = world.backups.of(self._disaster.op_id, table) if moment is not None else None
            put_back(world.raw, table, copy)
            what = "is lost" if moment is None else f"is restored to {moment / 1e6:.3f} s"
            world.met["disaster", f"{table} {what.partition(' to ')[0]}"] += 1
            if world.tracing:
                world.trace(f"   the table {table} {what}")
        world.tables_replaced(wal=any(table == "wal" for table, _ in self._disaster.tables))

    def _recover(self) -> tuple[RecoverReport, int]:
        """Again and again, until nothing is left that a store refused; the last report, and how many runs it took."""
        world = self._world
        actor = world.scheduler.current
        assert actor is not None
        rewound = self._disaster.rewinds
        for attempt in range(1, TRIES + 1):
            was, world.calm = world.calm, world.calm or attempt == TRIES
            process = world.slots[SLOT] = Process(world, SLOT, "operator")
            process.enter(actor)
            try:
                report = recover(process.stores, rewound=rewound)
                if report.clean or attempt == TRIES:
                    self._tell(report)
                    return report, attempt
                how = "a log is refused"
            except Killed:
                how = "the process dies"
            except (HeadraceError, StoreError) as exc:
                how = repr(exc)
            finally:
                process.exit(actor)
                world.calm = was
            world.met["recovery", f"done again: {how.partition('(')[0]}"] += 1
            if world.tracing:
                world.trace(f"   recovery {attempt}: {how}")
        raise AssertionError("the last run can't fail")

    def _set_aside(self, report: RecoverReport) -> None:
        """As the manual says: a log that was refused loses its name until somebody has looked at it, and nobody has."""
        world, model = self._world, self._world.model
        for said in report.logs:
            log = model.logs.get(said.log_id)
            if said.status != "refused" or log is None or model.current(log.config.name) is not log:
                continue
            if world.tracing:
                world.trace(f"   the row of {log.config.name} is removed")
            world.raw["catalog"].rows.pop((log.config.surface, log.config.name), None)
            model.name_given(log.config.name, "", world.scheduler.step())
            world.tables_replaced(wal=False)

    def _tell(self, report: RecoverReport) -> None:
        world = self._world
        for log in report.logs:
            world.met["recovery", f"a log is {log.status}"] += 1
            if world.tracing:
                what = f"{log.log_id[-8:]} {log.name} {log.status} end={log.end_offset} {log.incarnation}"
                world.trace(f"   recovered: {what} wrote={','.join(log.wrote)} {log.reason}")
