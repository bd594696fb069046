"""A log whose columns are searched: key, node and append time of records; on the least surface that writes such a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.batch import Batch, Record
from headrace.definition import COLUMNS
from headrace.log import seam
from headrace.log.logs import Log
from headrace.log.requests import Head
from headrace.log.seam import Decision, Draft, Ids, Look, Request, Rows, Surface
from headrace.memory import memory_stores
from headrace.query.engine import context as engines
from headrace.query.engine.context import Engine
from headrace.query.engine.hidden import Hidden
from headrace.query.engine.search import SearchAnswer, search
from headrace.tables.catalog import PutRow, Row
from headrace.wal.state import LogConfig, LogState, TimeRun
from tests.support import index_runs
from tests.support.builders import JSON
from tests.support.clocks import ManualClock
from tests.unit.api.asgi import QUIET

NAME = "events"
_SURFACE = "streams"  # of the stores; nothing here asks for more than a name in the catalog


class _Columned(Surface):
    name = _SURFACE
    noun = "log"

    def decide(
        self, logs: Sequence[Look | None], requests: Sequence[Request], rows: Rows, now_ms: int, ids: Ids
    ) -> Decision:
        """Decides appends of batches."""
        (look,) = logs
        assert look is not None
        state, times, batches = look.state, [], [one.request for one in requests]
        for batch in batches:
            grown = seam.grow(state, batch, now_ms)
            state = grown.state
            times.append(TimeRun(len(batch), grown.time_ms))
        draft = Draft(look.log_id, "data", state, batches, tuple(times), tuple(range(len(batches))))
        return Decision([state.next_offset] * len(batches), (draft,))


class Columned:
    """One such log on memory stores, and what it holds.

    Attributes:
        hidden: the records that no answer shows.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.stores = memory_stores(QUIET, clock=self.clock)
        self.hidden = Hidden()
        self.records: list[Record] = []

        def decide(looks: Sequence[Look | None], _: Sequence[Request], __: Rows, now_ms: int, ids: Ids) -> Decision:
            row = Row(ids.log(), LogConfig(_SURFACE, NAME, 0, JSON, now_ms))
            state = LogState(touched_ms=now_ms, definition=COLUMNS)
            return Decision((row,), (Draft(row.log_id, "create", state, config=row.config),), (PutRow(row, None),))

        self.log = self.process()
        self.log.control(NAME, lambda controls: controls.find_any(NAME), decide)

    def process(self) -> Log:
        """Returns the log as another process has it."""
        return Log(self.stores, _Columned())

    def append(self, data: Sequence[bytes], key: str | None = None, node: str | None = None) -> None:
        """Appends records in one entry, a second after the one before."""
        self.clock.advance(1)
        batch = Batch.of(data, key=key, node=node)
        self.log.appender.append(NAME, batch).result()
        self.records += batch.at(self.clock.now_ms()).records(len(self.records))

    def engine(self) -> Engine:
        """Returns the engine of a process that knows nothing yet."""

        def find_hidden(head: Head) -> Hidden:
            assert head.config.name == NAME
            return self.hidden

        return engines.assemble(self.stores, self.process(), find_hidden=find_hidden)

    def search(self, q: str, **asked: object) -> SearchAnswer:
        """Searches in a process that knows nothing yet."""
        return search(self.engine(), NAME, {"q": q, **asked})

    def stages(self) -> Iterator[str]:
        """Moves the records on, and yields where they are: tail, segments, runs, one run."""
        yield "tail"
        index_runs.sealed(self.stores, self.log, NAME)
        yield "segments"
        index_runs.index(self.stores, self.log, NAME)
        yield "runs"


def offsets(answer: SearchAnswer) -> list[int]:
    """Returns the offsets of the hits, in their order."""
    return [hit.candidate.offset for hit in answer.hits]
