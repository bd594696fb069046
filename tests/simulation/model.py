"""The sequential model of every log, built from the commits that took effect, in the order in which they did.

An entry that names the newest entry of its log as its predecessor, and is in the slot after it, is the log's next
change. Anything else that gets into the table is dead, and no answer may ever rest on it. The model applies each change
by its own rules, which are simpler than the engine's and remember everything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from typing import Any

from headrace.batch import Batch, concat
from headrace.definition import COLUMNS
from headrace.streams.values import AppendRequest, CreateRequest, state_of
from headrace.topics.values import TIMINGS, TOPICS
from headrace.wal.state import DefinitionRef, Entry
from tests.simulation import definitions
from tests.simulation.log_model import LogModel, View, Written
from tests.simulation.topics import Topics

Broken = Callable[[str, str], None]


class LawBroken(AssertionError):
    """A law does not hold."""

    def __init__(self, law: str, text: str) -> None:
        super().__init__(f"{law}: {text}")
        self.law = law


class Model:
    """All logs."""

    def __init__(
        self,
        broken: Broken,
        request_of: Callable[[str], Any],
        payload_of: Callable[[Entry], Any],
        topics: Topics,
    ) -> None:
        self.topics = topics
        self.logs: dict[str, LogModel] = {}
        self.names: dict[str, list[tuple[int, str]]] = {}
        self.written: dict[int, Written] = {}
        self.dead: set[tuple[str, int]] = set()  # where items were put that no log goes through
        self.lost: dict[str, LogModel] = {}  # logs of which a disaster left nothing, as they were
        self.over: set[str] = set()  # logs that had ended before the last disaster
        self.refused: set[str] = set()  # logs that a recovery could not bring back, and said so
        self.recovering = False
        self._broken = broken
        self._request_of = request_of
        self._payload_of = payload_of

    def name_given(self, name: str, log_id: str, step: int) -> None:
        """A name stands for another log from now on; for none, if that is empty."""
        self.names.setdefault(name, []).append((step, log_id))

    def current(self, name: str) -> LogModel | None:
        """Returns the log that a name stands for."""
        given = self.names.get(name)
        return self.logs.get(given[-1][1]) if given else None

    def is_named(self, log: LogModel) -> bool:
        """Returns whether the log's name stands for it, or for its main log."""
        current = self.current(log.config.name)
        return current is not None and current.log_id in (log.log_id, log.config.main)

    def candidates(self, name: str, step: int) -> list[LogModel]:
        """Returns the logs that the name has stood for since `step`."""
        given = self.names.get(name, [])
        index = bisect_right([at for at, _ in given], step)
        return [self.logs[log_id] for _, log_id in given[max(0, index - 1) :] if log_id in self.logs]

    def existed(self, name: str, step: int) -> LogModel | None:
        """Returns the log that the name stood for at `step`."""
        given = self.names.get(name, [])
        index = bisect_right([at for at, _ in given], step)
        return self.logs.get(given[index - 1][1]) if index else None

    @property
    def left_alone(self) -> set[str]:
        """Logs whose past a disaster met, and to which no name leads any more: nobody asks for them, nobody tends them."""
        return {log_id for log_id, log in self.logs.items() if log.survived and not self.is_named(log)}

    @property
    def forks_left_alone(self) -> Counter[str]:
        """How many forks of each log are left alone. If only the write-ahead log knew one when a recovery ran (the catalog
        was lost, or is of an earlier moment than the manual asks for), that could neither give it its name nor count it.
        The sealer publishes it later all the same, and `verify`, which finds it then, rightly says that it is not counted.
        """
        forks = (self.logs[log_id] for log_id in self.left_alone)
        return Counter(one.config.source.log_id for one in forks if one.now.holds_source and one.config.source)

    def slice(self, log: LogModel, start: int, stop: int) -> list[bytes]:
        """Records of a stream by position, inherited ones included."""
        return [data for data, _ in self.written_between(log, start, stop)]

    def written_between(self, log: LogModel, start: int, stop: int) -> list[tuple[bytes, int]]:
        """Returns records as `slice` does, each with the version of the schema that it was accepted under."""
        found: list[tuple[bytes, int]] = []
        at = start
        for ancestor in log.config.lineage:
            if at < min(ancestor.through, stop):
                until = min(ancestor.through, stop)
                source = self.logs[ancestor.log_id]
                base = source.config.base_offset
                found += source.stretch(at - base, until - base)
                at = until
        base = log.config.base_offset
        if at < stop:
            found += log.stretch(at - base, stop - base)
        return found

    def commit(self, entry: Entry, step: int) -> bool:
        """Notes that an entry took effect; returns whether it is the next change of its log."""
        log = self.logs.get(entry.log_id)
        if log is None:
            is_first = entry.kind == "create" or (entry.kind == "recover" and entry.log_id in self.lost)
            if not is_first or entry.prev_slot != -1 or entry.config is None:
                self._broken("whole logs", f"first entry is no create: {entry}")
                return False
            log = self.logs[entry.log_id] = LogModel(entry.log_id, entry.config)
            base, lost = entry.config.base_offset, self.lost.get(entry.log_id)
            begun = lost.views[0].definition if lost is not None and lost.config.source is not None else None
            if lost is not None and entry.config.surface == TOPICS:
                begun = TIMINGS if entry.config.role else COLUMNS
            is_fork = entry.config.source is not None
            log.views.append(View(0, base, False, "", None, 0, is_fork, definition=begun))
        elif self.recovering and (entry.slot, entry.id) == (log.tip.slot, log.tip.id):
            if entry.state != log.tip.state:
                self._broken("published is complete, disjoint and true", f"{_brief(entry)} was published otherwise")
            return True  # a recovery publishes its entry before it writes it
        elif log.gone and entry.kind == "recover":
            pass  # its predecessor need not stand
        elif (entry.prev_slot, entry.prev_id) != (log.tip.slot, log.tip.id):
            self.dead.add((entry.log_id, entry.slot))
            if entry.slot > log.tip.slot:
                self._broken(
                    "one chain", f"entry beyond the end does not follow it: {_brief(entry)} {_brief(log.tip)}"
                )
            return False
        elif not log.gone and (entry.offset != log.now.next_offset or entry.slot <= log.tip.slot):
            self._broken("contiguous offsets", f"{_brief(entry)} after {_brief(log.tip)}")
        self._apply(log, entry, step)
        return True

    def _apply(self, log: LogModel, entry: Entry, step: int) -> None:
        view = log.now
        if view.ended and entry.kind not in ("unfork", "release", "recover"):
            self._broken("an end is final", f"{_brief(entry)} after the end of {log.log_id}")
        log.entries.append(entry)
        is_topic = log.config.surface == TOPICS and entry.kind != "recover"
        if is_topic:
            view = self.topics.apply(log, view, entry, step)
        match "" if is_topic else entry.kind:
            case "create" | "data" | "close":
                view = self._apply_requests(log, view, entry, step)
            case "define":
                view = self._define(log, view, entry)
            case "fork":
                view = view._replace(forks=view.forks + 1)
            case "unfork":
                # a log that no name leads to may give back what a recovery did not count
                view = view._replace(forks=max(0, view.forks - 1) if log.survived else view.forks - 1)
            case "release":
                view = view._replace(holds_source=False)
            case "delete":
                view = view._replace(ended="deleted")
                self.written[_op_of(entry.id)] = Written(log.log_id, entry, entry.offset, 0)
            case "expire":
                view = view._replace(ended="expired")
            case "recover":
                view = self._apply_recovery(log, view, entry)
        if log.views[-1].step == 0:
            log.views.clear()
        log.views.append(view._replace(step=step))
        log.steps.append(step)
        if log.gone:
            return  # nobody will ever read it
        if log.config.surface == TOPICS:
            self.topics.applied(log, entry, step)
        state, stream = entry.state, state_of(entry.state)
        expected: tuple[Any, ...] = (view.next_offset, view.closed, view.ended, view.last_seq, view.forks)
        expected += (view.holds_source, view.recoveries, view.definition)
        found: tuple[Any, ...] = (state.next_offset, stream.closed, state.ended, stream.last_seq, state.forks)
        found += (state.holds_source, state.recoveries, state.definition)
        if expected != found:
            self._broken("states follow from requests", f"{_brief(entry)} expected={expected} found={found}")
        size = sum(map(len, log.records))
        if state.total_bytes != size:
            self._broken("states follow from requests", f"{_brief(entry)} bytes={size} found={state.total_bytes}")
        for producer in state.producers:
            if log.producers[producer.id][-1][1:] != (producer.epoch, producer.seq):
                self._broken("producers", f"{_brief(entry)} {producer} {log.producers[producer.id][-1]}")

    def _apply_recovery(self, log: LogModel, view: View, entry: Entry) -> View:
        """Applies an entry of a recovery, which counts forks again, raises the incarnation, ends what had ended, and
        must change nothing else; returns the view after it.
        """
        state, law = entry.state, "a recovery changes nothing else"
        if not self.recovering:
            self._broken(law, f"{_brief(entry)}, and nobody recovers")
        if state.ended and log.log_id not in self.over and not self._lacks(log):
            self._broken("a recovery ends nothing that lived", f"{_brief(entry)} of {log.config.name}")
        raised = state.recoveries[len(view.recoveries) :]
        if not log.gone and raised:
            if len(raised) > 1 or raised[0].at != view.next_offset:
                self._broken(law, f"{_brief(entry)} recoveries={state.recoveries} before={view.recoveries}")
            if raised[0].incarnation <= log.incarnation_in(view):
                self._broken("an incarnation only rises", f"{_brief(entry)} {log.incarnation_in(view)} {raised}")
        return view._replace(
            ended=view.ended or state.ended,
            forks=state.forks,
            holds_source=view.holds_source and state.holds_source,
            recoveries=(*view.recoveries, *raised),
        )

    def _lacks(self, log: LogModel) -> bool:
        """Nothing is left of a fork but its row, and something that it inherits is lost, too."""
        return log.log_id in self.lost and any(
            one.log_id not in self.logs or self.logs[one.log_id].now.next_offset < one.through
            for one in log.config.lineage
        )

    def _define(self, log: LogModel, view: View, entry: Entry) -> View:
        op_id, ref = _op_of(entry.id), entry.state.definition
        if op_id in self.written:
            self._broken("a request is applied once", f"{_brief(entry)} and {_brief(self.written[op_id].entry)}")
        if definitions.facts(ref) != self._request_of(entry.id).expected(view.definition):
            self._broken("a definition follows from its change", f"{_brief(entry)} {view.definition} {ref}")
        self.written[op_id] = Written(log.log_id, entry, entry.offset, 0)
        return view._replace(definition=ref)

    def _inherited(self, log: LogModel, entry: Entry) -> DefinitionRef | None:
        """Returns the definition that a log begins with: that of its source, or none."""
        source, ref = log.config.source, entry.state.definition
        before = self.logs[source.log_id].now.definition if source is not None else None
        if definitions.facts(ref)[1:] != definitions.facts(before)[1:]:
            self._broken("a fork begins with its source's definition", f"{_brief(entry)} {before} {ref}")
        return ref

    def _apply_requests(self, log: LogModel, view: View, entry: Entry, step: int) -> View:
        batches: list[Batch] = []
        for request_id in entry.request_ids:
            op_id, request = _op_of(request_id), self._request_of(request_id)
            if op_id in self.written:
                self._broken("a request is applied once", f"{_brief(entry)} and {_brief(self.written[op_id].entry)}")
            if entry.kind == "create":
                assert isinstance(request, CreateRequest)
                view = view._replace(definition=self._inherited(log, entry))
                batches.append(request.records)
                partial = entry.count - len(request.records)
                if partial not in ((0, 1) if request.fork is not None and request.fork.sub_offset else (0,)):
                    self._broken("whole batches", f"{_brief(entry)} holds other records than its create")
                next_offset = view.next_offset + entry.count
                view = view._replace(next_offset=next_offset, closed=request.closed)
            else:
                assert isinstance(request, AppendRequest)
                self._judge_append(log, view, request, entry, step)
                batches.append(request.records)
                view = view._replace(
                    next_offset=view.next_offset + len(request.records),
                    closed=request.close,
                    last_seq=request.seq if request.seq is not None else view.last_seq,
                )
                next_offset = view.next_offset
            self.written[op_id] = Written(log.log_id, entry, next_offset, len(request.records))
        held = self._payload_of(entry)
        records = concat(batches)
        own = held.part(len(held) - len(records), len(held))
        if len(held) != entry.count or own != records or sum(run.count for run in entry.times) != entry.count:
            self._broken("whole batches", f"{_brief(entry)} does not hold what was asked")
        version = definitions.facts(view.definition)[1]
        if definitions.refused(log.config.content_type, records, view.definition):
            self._broken("records fit the schema in force at their slot", f"{_brief(entry)} {view.definition}")
        log.records += held.slices()
        log.versions += [version] * len(held)
        times = [run.time_ms for run in entry.times for _ in range(run.count)]
        if any(after < before for before, after in zip(log.times[-1:] + times, times, strict=False)):
            self._broken("append times never fall", f"{_brief(entry)} {log.times[-1:]} {times}")
        log.times += times
        return view

    def _judge_append(self, log: LogModel, view: View, request: AppendRequest, entry: Entry, step: int) -> None:
        if view.closed:
            self._broken("a close is final", f"{_brief(entry)} after the close of {log.log_id}")
        if request.records and request.content_type != log.config.content_type:
            self._broken("one content type", f"{_brief(entry)}")
        if request.seq is not None and view.last_seq is not None and request.seq <= view.last_seq:
            self._broken("Stream-Seq rises", f"{_brief(entry)} {view.last_seq} {request.seq}")
        if request.producer is None:
            return
        asked = request.producer
        history = log.producers.setdefault(asked.id, [])
        known = history[-1][1:] if history else None
        follows = known is not None and (asked.epoch, asked.seq) == (known[0], known[1] + 1)
        begins = asked.seq == 0 and (known is None or asked.epoch > known[0])
        if not (follows or begins):
            self._broken("a producer's write is applied once, in order", f"{_brief(entry)} {asked} after {known}")
        history.append((step, asked.epoch, asked.seq))
        log.applied.setdefault(asked.id, []).append((entry.slot, asked.epoch, asked.seq))


def _op_of(request_id: str) -> int:
    """Returns the operation that made a request id."""
    return int(request_id.partition(".")[0])


def _brief(entry: Entry) -> str:
    return (
        f"[{entry.log_id[-4:]}@{entry.slot // 10**9}+{entry.slot % 10**9} {entry.kind} n={entry.count} "
        f"ids={','.join(entry.request_ids)} prev={entry.prev_slot // 10**9}+{entry.prev_slot % 10**9}:{entry.prev_id}]"
    )
