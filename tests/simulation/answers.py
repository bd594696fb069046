"""The laws of answers: each must be one that a single, sequential server could have given at some moment of the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.definition import Definition
from headrace.errors import (
    Conflict,
    Damaged,
    Gone,
    HeadraceError,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    StoreError,
)
from headrace.log.requests import Head, ReadPage
from headrace.streams.errors import ProducerGap, SequenceConflict, StaleProducer, StreamClosed
from headrace.streams.values import Appended, AppendRequest, Created
from headrace.wal.state import decode_cursor
from tests.simulation import definitions
from tests.simulation.log_model import LogModel

if TYPE_CHECKING:
    from tests.simulation.world import Running, World


class Answers:
    """Judges what callers hear."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.law = ""
        self.never: dict[int, str] = {}  # operations that were told that nothing was written, and how

    def _law(self, law: str) -> None:
        self.law = law
        self._world.checked[law] += 1

    def _broken(self, law: str, text: str) -> None:
        self._world.broken(law, text)

    def _fails(self, running: Running, text: str) -> None:
        self._broken(self.law, f"operation {running.op.id} {running.kind} {running.op.name}: {text}")

    def _usable(self, running: Running, log: LogModel) -> None:
        """An answer about a log that had ended before the call began is stale."""
        if log.ended_before(running.start):
            self._law("an end is final the moment it answers")
            self._fails(running, f"answered from {log.log_id[-8:]}, which had ended")

    def _by_incarnation(self, running: Running, incarnation: int) -> LogModel:
        for log in self._world.model.candidates(running.op.name, running.start):
            if any(log.incarnation_in(view) == incarnation for view in log.since(running.start)):
                return log
        self._law("an end is final the moment it answers")
        self._fails(running, f"answered for incarnation {incarnation}, which was replaced before the call")
        raise AssertionError

    # Writes.

    def appended(self, running: Running, answer: Appended) -> None:
        """An append or a close was acknowledged."""
        request: AppendRequest = running.request
        cursor = decode_cursor(answer.next_offset)
        log = self._by_incarnation(running, cursor.incarnation or 0)
        self._usable(running, log)
        self._law("acknowledged is written")
        if answer.duplicate:
            self._duplicate(running, log, request, answer)
            return
        written = self._world.model.written.get(running.op.id)
        if written is None or written.log_id != log.log_id:
            self._fails(running, f"acknowledged at {answer.next_offset}, and not in the log")
            return
        if written.next_offset != cursor.position:
            self._fails(running, f"acknowledged at {cursor.position}, is before {written.next_offset}")
        if answer.closed != request.close:
            self._fails(running, "closed is not as asked")

    def _duplicate(self, running: Running, log: LogModel, request: AppendRequest, answer: Appended) -> None:
        self._law("a duplicate was written before")
        if running.op.id in self._world.model.written:
            self._fails(running, "called a duplicate, and written")
        if request.producer is None:
            if not log.now.closed:
                self._fails(running, "told that it is closed, and it is not")
            return
        asked = request.producer
        done = any(epoch == asked.epoch and seq >= asked.seq for _, epoch, seq in log.applied.get(asked.id, []))
        if not done:
            self._fails(running, f"duplicate of {asked}, which was never written")
        self.never[running.op.id] = "duplicate"

    def created(self, running: Running, answer: Created) -> None:
        """A create was acknowledged."""
        log = self._world.model.logs.get(answer.head.log_id)
        self._law("acknowledged is written")
        if log is None:
            self._fails(running, "created a log that is not there")
            return
        self._usable(running, log)
        written = self._world.model.written.get(running.op.id)
        if answer.created and (written is None or written.log_id != log.log_id):
            self._fails(running, "created, and not by this request")

    def deleted(self, running: Running, answer: bool) -> None:
        """A delete was acknowledged."""
        self._law("acknowledged is written")
        written = self._world.model.written.get(running.op.id)
        if answer and written is None:
            self._fails(running, "deleted, and not in the log")
        if not answer and not any(
            log.now.ended == "deleted" for log in self._world.model.candidates(running.op.name, running.start)
        ):
            self._fails(running, "deleted before, and it lives")

    def defined(self, running: Running, answer: Definition) -> None:
        """A change of a definition was acknowledged."""
        self._law("acknowledged is written")
        written = self._world.model.written.get(running.op.id)
        if written is None:
            self._fails(running, "defined, and not in the log")
            return
        self._usable(running, self._world.model.logs[written.log_id])
        self._law("acknowledged is written")
        if definitions.facts(written.entry.state.definition)[1:] != (answer.schema_version, answer.own.kind):
            self._fails(running, f"told of another definition: {answer.document}")

    # Reads.

    def head(self, running: Running, head: Head) -> LogModel | None:
        """Judges a tail that somebody was told; returns the model of its log, or None if there is no such log."""
        log = self._world.model.logs.get(head.log_id)
        self._law("reads see what was acknowledged")
        if log is None:
            self._fails(running, f"log is not there: {head.log_id}")
            return None
        self._usable(running, log)
        before = log.at(running.start)
        known = before.next_offset if before is not None else log.config.base_offset
        if not known <= head.state.next_offset <= log.now.next_offset:
            self._fails(running, f"tail {head.state.next_offset} not in {known}..{log.now.next_offset}")
        if before is not None and before.closed and not head.state.is_final:
            self._fails(running, "read as open after its close")
        if all(view.definition != head.state.definition for view in log.since(running.start)):
            self._fails(running, f"read under a definition that was not in force: {head.state.definition}")
        if head.state.is_final and not log.now.closed:
            self._fails(running, "read as closed, and it is open")
        return log

    def read(self, running: Running, page: ReadPage, start: int | None, since_ms: int | None) -> None:
        """A page that somebody read."""
        log = self.head(running, page.head)
        if log is None:
            return
        self._law("reads show the log, without a gap")
        if start is not None and page.start != start:
            self._fails(running, f"asked for {start}, got {page.start}")
        if since_ms is not None:
            self._since(running, log, page, since_ms)
        if page.end != page.head.state.next_offset or page.next != page.start + len(page.data):
            self._fails(running, f"page contradicts itself: {page.start} {page.next} {page.end}")
        if page.start < page.end and not page.data:
            self._fails(running, f"page is empty at {page.start}, end {page.end}")
        version = definitions.facts(page.head.state.definition)[1]
        if page.data != definitions.shown(self._world.model.written_between(log, page.start, page.next), version):
            self._fails(running, f"other records from {page.start} to {page.next}: {page.data[:3]}")

    def _since(self, running: Running, log: LogModel, page: ReadPage, since_ms: int) -> None:
        """The page begins with the first record that is young enough."""
        self._law("since finds the first record")
        times: list[int] = []
        for ancestor in log.config.lineage:
            if ancestor.through <= len(times):
                continue  # nothing of it is read, and it may be lost
            source = self._world.model.logs[ancestor.log_id]
            times += source.times[
                len(times) - source.config.base_offset : ancestor.through - source.config.base_offset
            ]
        times += log.times
        before = log.at(running.start)
        least = before.next_offset if before is not None else 0
        expected = next((at for at, time_ms in enumerate(times) if time_ms >= since_ms), None)
        right = page.start == expected if expected is not None else page.start >= least
        late = expected is not None and expected >= least and page.start >= least
        if not (right or late):
            self._fails(running, f"since {since_ms} begins at {page.start}, expected {expected}")

    # Refusals.

    def refused(self, running: Running, exc: Exception) -> None:
        """A call failed: it must say why truly, and what it says was not written must never be."""
        model, name = self._world.model, running.op.name
        logs = model.candidates(name, running.start)
        match exc:
            case OutcomeUnknown():
                return
            case Damaged():
                self._law("no damage")
                if not any(log.log_id in str(exc) and log.purgeable for log in model.logs.values()):
                    self._fails(running, repr(exc))
            case HeadraceError() | StoreError():
                if running.kind in ("append", "produce", "close", "create", "fork", "delete", "define"):
                    self.never[running.op.id] = repr(exc)
                    self._law("refused is not written")
                    if running.op.id in model.written:
                        self._fails(running, f"told {exc!r}, and written")
                if isinstance(exc, HeadraceError) and running.kind not in ("create", "fork"):
                    self._justified(running, exc, logs)
            case _:
                self._law("no unexpected error")
                self._fails(running, repr(exc))

    def _justified(self, running: Running, exc: HeadraceError, logs: list[LogModel]) -> None:
        self._law("refusals are true")
        start = running.start
        views = [view for log in logs for view in log.since(start)]
        request: Any = running.request
        producer: Any = getattr(request, "producer", None)
        known = [one for log in logs for one in log.known_producer(producer.id, start)] if producer else []
        match exc:
            case Overloaded():
                right = True
            case Gone():
                right = any(view.ended for view in views) or running.text == "foreign"
            case NotFound():
                existed = self._world.model.existed(running.op.name, start)
                right = existed is None or bool(existed.now.ended)
            case StreamClosed():
                right = any(view.closed for view in views)
            case SequenceConflict():
                right = request.seq <= exc.expected and any(view.last_seq == exc.expected for view in views)
            case ProducerGap():
                expected = (producer.epoch, exc.expected - 1)
                right = (None if exc.expected == 0 else expected) in known
            case StaleProducer():
                right = any(one is not None and one[0] == exc.epoch > producer.epoch for one in known)
            case Conflict():
                right = any(log.config.content_type != getattr(request, "content_type", None) for log in logs)
            case InvalidRequest():
                begins_late = producer and any(one is not None and one[0] < producer.epoch for one in known)
                right = begins_late or any(
                    request is not None
                    and definitions.refused(request.content_type, request.records, view.definition)
                    for view in views
                )
            case _:
                right = True
        if not right:
            self._fails(running, f"told {exc!r}, which was never so during the call: {views} {known}")
