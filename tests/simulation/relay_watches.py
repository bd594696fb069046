"""Watches under every order of store calls: writers, clients that come again with the id of their last event or without
one, streams that go on although their clients have left, and relays that ring late or twice.

    uv run python -m tests.simulation.relay --world watches

A watch of many topics is told of them by its bell alone: the door's reads in turn, which heal a lost ring, are made only
for a session whose bell a stream has silenced and then died.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from functions.relay.handler import Relay
from headrace.batch import Batch, Record, decode_frames
from headrace.errors import HeadraceError, Overloaded, StoreError
from headrace.memory import memory_stores
from headrace.topics.values import DiffRequest, Match, TopicConfig, WriteRequest
from headrace.topics.verbs import Topics
from headrace.watch import ids
from headrace.watch.errors import Fenced
from headrace.watch.frames import Frame, Records, Tombstone, TopicDeleted
from headrace.watch.stream import News, Stream
from headrace.watch.values import Options, Start
from headrace.watch.verbs import Watches
from tests.simulation.mutant import Mutant
from tests.simulation.relay_world import HeardWal, Relays, Simulation, Step
from tests.support.clocks import ManualClock

CONFIGS = {
    **{f"t{number}": TopicConfig() for number in range(6)},
    "cap": TopicConfig(cap_records=3),
    "ttl": TopicConfig(ttl_ms=20_000),
    "erased": TopicConfig(),
    "again": TopicConfig(),
}
FEW = ("t0", "cap", "erased", "again")
STREAM_MS = 60_000
SWEEPS = 4  # 15 s apart: a message counts as lost after half a minute
ROUNDS = 200  # after which a watch that still reads never comes to rest


class Process:
    """One process of the api, or a relay."""

    def __init__(self, simulation: Watchers) -> None:
        self.stores = simulation.faulty(simulation.stores)
        self.topics = Topics(self.stores)
        self.watches = Watches(self.stores, self.topics, simulation.new_id)
        self.relay: Relay = simulation.relays.relay(self.stores)


class Connection:
    """A stream that is open, what its client has had of each topic since, and whether there still is one."""

    def __init__(self, stream: Stream, ends_ms: int) -> None:
        self.stream, self.ends_ms = stream, ends_ms
        self.due: dict[int, None] = dict.fromkeys(stream.living)
        self.at: dict[str, tuple[int | None, int]] = {}
        self.is_heard = True


class Client:
    """A client, and what it has.

    Attributes:
        at: incarnation and seq of each topic.
        got: data by topic, incarnation and seq.
        gaps, missed: what it was told that it has missed, and what it was told nothing about.
        unsure: whether a ring may be lost with a stream that had silenced the bell.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.wid = self.last_id = ""
        self.connection: Connection | None = None
        self.needs_id = self.unsure = False
        self.at: dict[str, tuple[int | None, int]] = dict.fromkeys(names, (None, 0))
        self.got: dict[tuple[str, int | None, int], bytes] = {}
        self.gaps = set[tuple[str, int | None, int]]()
        self.missed = set[tuple[str, int | None, int]]()


class Watchers(Simulation):
    """One run by a seed."""

    name = "watches"
    fates = ((0.005, "fails"), (0.015, "lost"), (0.0165, "dies"), (0.018, "dies after"))  # or no stream hears a bell

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.clock, self.wal = ManualClock(), HeardWal(self)
        self.stores = memory_stores(clock=self.clock, wal=self.wal)
        self.relays = Relays(self, self.wal, self.stores)
        self._clients = [Client(tuple(CONFIGS)), Client(tuple(CONFIGS)), Client(FEW)]
        self._left: list[tuple[Client, Connection]] = []  # streams whose clients have left
        self.patches = [(ids, "MAX_TOPICS", 5)] if seed % 2 else []  # then ids say only what has changed

    def new_id(self) -> str:
        """Returns the id of a session."""
        return f"wid{next(self._ids)}"

    def process(self) -> Process:
        """Returns a process with a cold memory."""
        return Process(self)

    # What happens.

    def _prepare(self) -> None:
        process = self.process()
        for name, config in CONFIGS.items():
            process.topics.put(name, config)
            self._append(process, name)

    def _plans(self) -> Iterator[Sequence[Step]]:
        for _ in range(2):
            yield self.some(25, (self._write, 18), (self._erase, 1), (self._start_over, 1))
        for client in self._clients:
            yield [lambda process, client=client: self._turn(process, client)] * 50
        yield [self._go_on_alone] * 40
        for _ in range(2):
            yield [self._tell] * 50

    def _append(self, process: Process, name: str) -> None:
        data = [b"%d" % next(self._ids) for _ in range(self.random.randint(1, 3))]
        key = self.random.choice(("x", "y"))
        process.topics.append(name, WriteRequest(records=Batch.of(data, key=key)))

    def _write(self, process: Process) -> None:
        self.linger(30)
        self.clock.advance(self.random.choice((0, 1, 5)))
        self._append(process, self.random.choice(tuple(CONFIGS)))

    def _erase(self, process: Process) -> None:
        process.topics.erase("erased", None, Match(self.random.choice(("x", "y"))))

    def _start_over(self, process: Process) -> None:
        process.topics.remove("again")

    def _tell(self, process: Process) -> None:
        self.relays.tell(process.relay)

    # Clients.

    def _turn(self, process: Process, client: Client) -> None:
        """A client comes, or its stream goes on, or it leaves: told or not."""
        if not client.wid:
            starts = {name: Start() for name in client.names}
            client.wid = process.watches.create(starts, Options(), "", lenient=True)[0]
        if client.connection is None:
            self._open(client)
        connection, roll = client.connection, self.random.random()
        assert connection is not None
        if roll < 0.03 and client.last_id:
            connection.is_heard = False  # and its server does not know
            self._left.append((client, connection))
            client.connection, client.needs_id = None, True
        elif roll < 0.05 or self.clock.now_ms() >= connection.ends_ms:
            client.connection = None
            connection.stream.close()
        else:
            self._round(client, connection)

    def _open(self, client: Client) -> None:
        brings = client.needs_id or self.random.random() < 0.5
        ends_ms = self.clock.now_ms() + STREAM_MS
        # It may go on while its client does other things: two actors can't share the locks of one process.
        stream = self.process().watches.open(client.wid, client.last_id if brings else "", ends_ms)
        client.connection, client.needs_id = Connection(stream, ends_ms), False

    def _go_on_alone(self, _: Process) -> None:
        self.pause()
        if self._left:
            client, connection = self._left[self.random.randrange(len(self._left))]
            self._round(client, connection)

    def _round(self, client: Client, connection: Connection) -> None:
        """One round of a stream, as the door does it."""
        try:
            stream, due = connection.stream, connection.due
            if not due:
                heard = stream.hear() if stream.rings else stream.living
                due.update(dict.fromkeys(number for number in heard if number in stream.living))
            for news in stream.read(list(islice(due, self.random.randint(1, 4)))):
                due.pop(news.number, None)
                for frame in news.frames:
                    if not self.calm and connection.is_heard and self.random.random() < 0.015:
                        self._end(client, connection)  # the frame did not get through
                        stream.close()
                        return
                    if connection.is_heard:
                        self._receive(client, connection, news, frame)
                    stream.sent(news, frame)
                if news.error is None:
                    stream.passed(news)
                if not news.is_drained or isinstance(news.error, StoreError | Overloaded):
                    due[news.number] = None
                elif news.error is not None:
                    raise news.error
            if not stream.is_saved and self.random.random() < 0.3:
                stream.save()
        except (StoreError, Overloaded):
            client.unsure |= not connection.is_heard
            raise  # and goes on later
        except Fenced:
            self._end(client, connection)
        except BaseException:
            client.unsure |= not connection.is_heard
            self._end(client, connection)
            raise

    def _end(self, client: Client, connection: Connection) -> None:
        if client.connection is connection:
            client.connection = None
        self._left = [one for one in self._left if one[1] is not connection]

    def _receive(self, client: Client, connection: Connection, news: News, frame: Frame) -> None:
        name, incarnation = connection.stream.names[news.number], news.after.incarnation
        client.last_id = connection.stream.event_id(news, frame)
        if isinstance(frame, TopicDeleted):
            return
        known, had = client.at[name]
        had = had if known in (None, incarnation) else 0
        of_stream, sent = connection.at.get(name, (None, 0))
        seqs: list[int] = []
        if isinstance(frame, Records):
            seqs = [record.offset + 1 for record in frame.records]
            in_order = seqs == sorted(set(seqs)) and frame.from_seq < seqs[0] and seqs[-1] <= frame.seq
            is_once = of_stream != incarnation or sent < seqs[0]
            self.note("a stream sends each record once, in order", in_order and is_once, name, sent, frame)
            client.got |= {(name, incarnation, record.offset + 1): record.data for record in frame.records}
        elif isinstance(frame, Tombstone) and frame.reason != "recreated":
            gap = range(frame.gap_from, frame.gap_to + 1)
            client.gaps |= {(name, incarnation, seq) for seq in gap}
            seqs = [*gap]
        elif isinstance(frame, Tombstone):
            had = frame.seq
        client.missed |= {(name, incarnation, seq) for seq in range(had + 1, frame.seq + 1)} - {
            (name, incarnation, seq) for seq in seqs
        }
        client.at[name] = (incarnation, max(had, frame.seq))
        connection.at[name] = (incarnation, max(sent if of_stream == incarnation else 0, frame.seq))

    # At rest.

    def _settle(self) -> None:
        process = self.process()
        while self._left:
            client, connection = self._left[0]
            self._drain(client, connection)
            self._round(client, connection)
            self._end(client, connection)
        for _ in range(2):  # what a watch follows is told, too
            self.relays.settle(process.relay, SWEEPS)
            for client in self._clients:
                self._watch_all(process, client)

    def _drain(self, client: Client, connection: Connection) -> None:
        for _ in range(ROUNDS):
            if connection.due:
                self._round(client, connection)

    def _watch_all(self, process: Process, client: Client) -> None:
        if client.connection is None:
            self._turn(process, client)
        for _ in range(ROUNDS):
            connection = client.connection
            if connection is None:
                self._turn(process, client)
            elif connection.due or connection.stream._rung or self.stores.sessions.peek_bell(client.wid):
                self._round(client, connection)
            elif not connection.stream.rings or client.unsure:
                connection.due.update(dict.fromkeys(connection.stream.living))
                client.unsure = False
                self._drain(client, connection)
                return
            else:
                return

    def _judge(self) -> None:
        topics = self.process().topics
        logs = {
            (entry.config.name, entry.config.incarnation): log_id
            for log_id in self.wal.created
            if (entry := self.wal.read(log_id, limit=1).entries[0]).config is not None
        }
        written = {
            (name, incarnation, record.offset + 1): record.data
            for (name, incarnation), log_id in logs.items()
            for record in self._records(log_id)
        }
        for client in self._clients:
            self.require("a record is what was written", client.got.items() <= written.items(), client.got)
            self._judge_client(topics, client)

    def _records(self, log_id: str) -> Iterator[Record]:
        for entry in self.wal.read(log_id).entries:
            if entry.count and entry.payload is not None:
                yield from decode_frames(entry.payload, "").records(entry.offset)

    def _judge_client(self, topics: Topics, client: Client) -> None:
        connection = client.connection
        assert connection is not None, "it watches"
        for number, name in enumerate(connection.stream.names):
            try:
                head = topics.head(name)
            except HeadraceError:
                continue
            page = topics.diff(name, DiffRequest(0, limit=1000))
            live = {(name, page.incarnation, record.offset + 1) for record in page.records}
            missed = {one for one in client.missed if one[0] == name}
            self.require("gaps are only of what is gone", not live & client.gaps, name, live & client.gaps)
            silent = not missed if name != "erased" else not live & missed
            self.require("nothing is left out but what was deleted", silent, name, missed)
            if number in connection.stream.living:
                position, end = connection.stream._positions[number], head.state.next_offset
                is_read = (position.incarnation, position.seq) == (page.incarnation, end)
                self.require("a ring is never lost for good", is_read, client.wid, name, position, end)
                law = "a watcher has every record that lives"
                self.require(law, live <= client.got.keys(), name, live - client.got.keys())


# Mutants.


def _hear_and_clear_later(self: Any) -> Any:
    """What rings is read, and the bell is silenced after that."""
    self.rang = True
    return sorted(self._stores.sessions.bells.get(self._row.id, ()))


def _read_and_clear(self: Any, numbers: Any) -> Any:
    news = _read(self, numbers)
    if self.__dict__.pop("rang", False):
        self._stores.sessions.take_bell(self._row.id)
    return news


def _read_and_move(self: Any, numbers: Any) -> Any:
    """The cursor is behind the frames before they are sent."""
    found = _read(self, numbers)
    for news in found:
        if news.error is None:
            self.passed(news)
    return found


def _read_before_it_rings(self: Any, numbers: Any) -> Any:
    """A topic is read, and rings for what comes later still."""
    silent, self._silent = self._silent, set()
    news = _read(self, numbers)
    self._silent |= silent
    for number in silent & set(numbers):
        self._let_ring(number)
    return news


def _hear_for_nobody(self: Any) -> Any:
    """A stream that is fenced keeps what has rung."""
    try:
        return _hear(self)
    except Fenced:
        self._stores.sessions.take_bell(self._row.id)
        raise


_read, _hear = Stream.read, Stream.hear

MUTANTS = (
    Mutant(
        "bell cleared late",
        "a bell is rung while it is cleared",
        (Stream, "hear", _hear_and_clear_later),
        (Stream, "read", _read_and_clear),
        world="watches",
    ),
    Mutant(
        "cursor before frame",
        "a stream breaks off between the cursor and its frames",
        (Stream, "read", _read_and_move),
        world="watches",
    ),
    Mutant(
        "topic that rings after it was read",
        "a watch misses an append",
        (Stream, "read", _read_before_it_rings),
        world="watches",
    ),
    Mutant(
        "rings that a fenced stream keeps",
        "a stream that has ended silences the bell of its successor",
        (Stream, "hear", _hear_for_nobody),
        world="watches",
    ),
)
