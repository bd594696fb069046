"""The load: writers, followers, streams that are closed, deleted and created again, and forks.

Everybody is a thread with its own connection and its own random numbers, and writes down what it asked and heard.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from headrace.wal.state import encode_cursor
from tests.chaos.client import JSON, NOTHING_WRITTEN, PATIENCE_S, TEXT, UNKNOWN, Client, Impatient, body_of, position
from tests.chaos.history import Append, Creation, Ending, Fork, History, Life

# Name, content type and share of the writes. All writers meet on all of them.
STEADY = {
    "busy-0": (JSON, 30),
    "busy-1": (TEXT, 25),
    "quiet-0": (JSON, 12),
    "quiet-1": (TEXT, 8),
    "quiet-2": (JSON, 5),
}
COMING_AND_GOING = {"life-0": (JSON, 8), "life-1": (TEXT, 6), "life-2": (JSON, 6)}
MOST_PARTS = 5
SPILLED_SHARE, SPILLED_CHARACTERS = 0.02, 100_000  # hexadecimal digits: 50 KB compressed, more than an item takes
PRODUCER_SHARE = 0.6


@dataclass
class Common:
    """What the threads of a run share."""

    url: str
    seed: int
    pause_s: float
    history: History = field(default_factory=History)
    stop: threading.Event = field(default_factory=threading.Event)
    written: threading.Event = field(default_factory=threading.Event)
    kinds: dict[str, str] = field(default_factory=dict)
    answers: list[Counter[tuple[str, int]]] = field(default_factory=list)

    def random(self, name: str) -> Random:
        """Returns a generator of the random numbers of one thread."""
        return Random(f"{self.seed} {name}")


class Worker(threading.Thread):
    """A thread of the load. `error` is what ended it, if anything did. `prefix` is the path in front of names."""

    prefix = "/v1/stream/"

    def __init__(self, common: Common, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.common = common
        self.history = common.history
        self.random = common.random(name)
        self.error: BaseException | None = None
        self._sent = 0

    def run(self) -> None:
        self.client = Client(self.common.url, self.history, self.random, self.prefix)
        self.common.answers.append(self.client.answers)
        try:
            self.work()
        except BaseException as exc:  # noqa: BLE001 - reported by the run
            self.error = exc
        finally:
            self.client.close()

    @abstractmethod
    def work(self) -> None:
        """Works until the run stops."""

    def create(self, stream: str, kind: str, headers: dict[str, str] | None = None) -> Life:
        """Creates a stream, with as many tries as it takes; returns its life."""
        started = time.monotonic()
        given = headers if headers is not None else {"Content-Type": kind}
        answer = self.client.until({200, 201}, "PUT", stream, given)
        life = Life(stream, position(answer, "stream-next-offset").incarnation or 0)
        self.common.kinds[stream] = kind
        self.history.creations.append(Creation(life, started, time.monotonic()))
        return life

    def append(self, stream: str, kind: str, *, seq: int | None = None) -> Append:
        """Appends one batch, plainly or, with `seq`, as this thread's producer; notes the append and returns it."""
        self._sent += 1
        op = f"{self.name}-{self._sent}"
        parts = self.random.randint(1, MOST_PARTS) if kind == JSON else 1
        size = SPILLED_CHARACTERS if self.random.random() < SPILLED_SHARE else self.random.randrange(40)
        pads = [self.random.randbytes(size // 2).hex() for _ in range(parts)]
        ids = tuple(f"{op}.{part}" for part in range(parts))
        headers, body = {"Content-Type": kind}, body_of(ids, kind, pads)
        if seq is not None:
            headers |= {"Producer-Id": self.name, "Producer-Epoch": "0", "Producer-Seq": str(seq)}
            return self._note(self._as_producer(stream, op, parts, headers, body, seq))
        return self._note(self._plainly(stream, op, parts, headers, body))

    def _note(self, append: Append) -> Append:
        self.history.appends.append(append)
        return append

    def _as_producer(
        self, stream: str, op: str, parts: int, headers: dict[str, str], body: bytes, seq: int
    ) -> Append:
        started = time.monotonic()
        who = self.name
        try:
            answer = self.client.until({200, 204}, "POST", stream, headers, body)
        except Impatient as exc:
            self.history.surprises.append(str(exc))
            return Append(stream, op, parts, started, time.monotonic(), "unknown", producer=who, seq=seq)
        ended, at = time.monotonic(), position(answer, "stream-next-offset")
        life = Life(stream, at.incarnation or 0)
        end = at.position if answer.status == 200 else None
        return Append(stream, op, parts, started, ended, "acknowledged", life, end, who, seq)

    def _plainly(self, stream: str, op: str, parts: int, headers: dict[str, str], body: bytes) -> Append:
        """Appends a batch without a producer: sends again what was surely not written, but not what may have been."""
        started = time.monotonic()
        while True:
            answer = self.client.send("POST", stream, headers, body)
            ended = time.monotonic()
            if answer.status not in NOTHING_WRITTEN or ended - started > PATIENCE_S:
                break
            self.client.wait()
        if answer.status == 204:
            at = position(answer, "stream-next-offset")
            life = Life(stream, at.incarnation or 0)
            return Append(stream, op, parts, started, ended, "acknowledged", life, at.position)
        if answer.status in UNKNOWN:
            return Append(stream, op, parts, started, ended, "unknown")
        closed = answer.status == 409 and answer.headers.get("stream-closed") == "true"
        if not closed and answer.status not in {404, *NOTHING_WRITTEN}:
            self.client.surprise("POST", stream, answer)
        return Append(stream, op, parts, started, ended, "refused")


class Writer(Worker):
    """Appends to all streams: plainly, and to steady ones also as an idempotent producer."""

    def work(self) -> None:
        streams = {**STEADY, **COMING_AND_GOING}
        names, weights = list(streams), [weight for _, weight in streams.values()]
        next_seq: Counter[str] = Counter()
        while not self.common.stop.is_set():
            stream = self.random.choices(names, weights)[0]
            kind = streams[stream][0]
            if stream in STEADY and self.random.random() < PRODUCER_SHARE:
                self.append(stream, kind, seq=next_seq[stream])
                next_seq[stream] += 1
            else:
                self.append(stream, kind)
            self.common.stop.wait(self.random.random() * 2 * self.common.pause_s)


class Follower(Worker):
    """Follows one stream by long-polls from its start, through all its lives, until nobody writes any more."""

    def __init__(self, common: Common, stream: str, kind: str) -> None:
        super().__init__(common, f"follower of {stream}")
        self.stream, self.kind = stream, kind

    def work(self) -> None:
        offset, start = "-1", 0
        while True:
            nobody_writes = self.common.written.is_set()
            answer = self.client.read(self.name, self.stream, self.kind, offset, start, live=True)
            if answer.status in (200, 204):
                offset, start = answer.headers["stream-next-offset"], position(answer, "stream-next-offset").position
                if nobody_writes and answer.headers.get("stream-up-to-date") == "true":
                    return
                if answer.headers.get("stream-closed") == "true":
                    self.client.wait()
            elif answer.status in (404, 410) or (answer.status == 400 and self.stream in COMING_AND_GOING):
                offset, start = "-1", 0
                self.client.wait()
                if nobody_writes:
                    return
            elif answer.status in NOTHING_WRITTEN | UNKNOWN:
                self.client.wait()
            else:
                self.client.surprise("GET", self.stream, answer)
                self.client.wait()


class Cycle(Worker):
    """Creates a stream, lets others write to it, closes it perhaps, deletes it, and begins again."""

    def __init__(self, common: Common, stream: str, kind: str) -> None:
        super().__init__(common, f"cycle of {stream}")
        self.stream, self.kind = stream, kind

    def work(self) -> None:
        while True:
            life = self.create(self.stream, self.kind)
            if self.common.stop.wait(0.3 + self.random.random() * 2.5):
                return
            if self.random.random() < 0.5:
                self._close(life)
            started = time.monotonic()
            self.client.until({204}, "DELETE", self.stream, {})
            self.history.endings.append(Ending("delete", life, started, time.monotonic()))
            answer = self.client.read(f"{self.name} after its end", self.stream, self.kind, "-1", 0, live=False)
            if answer.status not in {404, *NOTHING_WRITTEN, *UNKNOWN}:
                self.client.surprise("GET", self.stream, answer)

    def _close(self, life: Life) -> None:
        started = time.monotonic()
        answer = self.client.until({204}, "POST", self.stream, {"Stream-Closed": "true"})
        end = position(answer, "stream-next-offset").position
        self.history.endings.append(Ending("close", life, started, time.monotonic(), end))
        self.append(self.stream, self.kind)  # is refused
        self.client.read_all(f"{self.name} closed {life.incarnation}", self.stream, self.kind)


class Forker(Worker):
    """Forks streams that others write to, and streams of its own, which it deletes under their forks."""

    def __init__(self, common: Common, forks: int) -> None:
        super().__init__(common, "forker")
        self.forks = forks
        self.living: dict[str, str] = {}

    def work(self) -> None:
        for number in range(self.forks):
            if self.common.stop.wait(0.2 + self.random.random() * 1.5):
                return
            if number % 3 == 0:
                self._of_own_source(number)
            else:
                self._of_steady(number)

    def _of_steady(self, number: int) -> None:
        source = self.random.choice([name for name in STEADY if name.startswith(("busy", "quiet-0"))])
        known = [a for a in self.history.acknowledged() if a.stream == source and a.end is not None]
        if not known:
            return
        chosen = self.random.choice(known[-200:])
        assert chosen.life is not None
        assert chosen.end is not None
        name = f"fork-{number}"
        self._fork(name, chosen.life, chosen.end)
        if self.random.random() < 0.4:
            self._end_fork(name)

    def _of_own_source(self, number: int) -> None:
        source, name = f"source-{number}", f"fork-{number}"
        kind = self.random.choice([JSON, TEXT])
        life = self.create(source, kind)
        appended = [self.append(source, kind) for _ in range(5)]
        ends = [append.end for append in appended if append.end is not None]
        if not ends:
            self.living[source] = kind
            return
        self.client.read_all(f"forker of {source}", source, kind)
        self._fork(name, life, ends[-1])
        started = time.monotonic()
        self.client.until({204, 410}, "DELETE", source, {})
        self.history.endings.append(Ending("delete", life, started, time.monotonic()))
        answer = self.client.read(f"forker after {source}", source, kind, "-1", 0, live=False)
        if answer.status not in {410, *NOTHING_WRITTEN, *UNKNOWN}:
            self.client.surprise("GET", source, answer)
        self.client.read_all(f"forker of {name}", name, kind)
        if self.random.random() < 0.5:
            self._end_fork(name)

    def _fork(self, name: str, source: Life, at: int) -> None:
        kind = self.common.kinds[source.stream]
        headers = {
            "Stream-Forked-From": f"/v1/stream/{source.stream}",
            "Stream-Fork-Offset": encode_cursor(source.incarnation, at),
        }
        life = self.create(name, kind, headers)
        self.history.forks.append(Fork(life, source, at))
        self.living[name] = kind
        for _ in range(3):
            self.append(name, kind)

    def _end_fork(self, name: str) -> None:
        kind = self.living[name]
        life = self.client.read_all(f"forker before the end of {name}", name, kind)
        # An append of unknown outcome may still arrive, so what was read is not everything.
        started = time.monotonic()
        self.client.until({204}, "DELETE", name, {})
        self.history.endings.append(Ending("delete", life, started, time.monotonic()))
        del self.living[name]
