"""The single machine: what its adapters do beyond the suites of the ports (`tests/contract`)."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from headrace.tables.items import ConditionFailed, n, s
from headrace.wal.dynamodb import DynamoWal
from local.deployment import ScheduleTrigger
from local.machine import LocalMachine, environment_of
from local.machine.bell import Bell, ring
from local.machine.changes import Streams, TableCheckpoint, forget_readers, stream_arn
from local.machine.database import Database, NewerDatabase
from local.machine.queues import Queue, Queues, declare_queue, queue_url
from local.machine.services import Secrets
from local.machine.shapes import Shape
from local.machine.sources import TableRuns
from local.machine.tables import SqliteStore, declare_table
from local.pumps import SchedulePump
from local.stream_pump import OLDEST, Position
from tests.support.builders import first_entry, log_id, next_entry
from tests.support.machine import declare_tables

KEYS = (("id", "S"), ("at", "N"))


@pytest.fixture
def bell(folder: Path) -> Iterator[Bell]:
    with closing(Bell(folder / "bell")) as bell:
        yield bell


def test_a_mistake_fails_alone_among_the_writes_of_many_threads(database: Database) -> None:
    declare_table(database, "t", Shape(KEYS))
    store = SqliteStore(database)
    outcomes: dict[int, str] = {}

    def write(number: int) -> None:
        condition = {"ConditionExpression": "attribute_not_exists(id)"} if number % 3 == 1 else {}
        at = n(0) if number % 3 == 1 else n(number) if number % 3 else {"N": "1.5"}
        try:
            store.call("PutItem", {"TableName": "t", "Item": {"id": s("a"), "at": at}, **condition})
            outcomes[number] = "ok"
        except (ConditionFailed, ValueError) as exc:
            outcomes[number] = type(exc).__name__

    threads = [threading.Thread(target=write, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = [[outcomes[number] for number in range(30) if number % 3 == rest] for rest in range(3)]
    assert kinds[0] == ["ValueError"] * 10
    assert sorted(kinds[1]) == ["ConditionFailed"] * 9 + ["ok"]
    assert kinds[2] == ["ok"] * 10


WRITER = """
import sys
from local.machine import open_machine
from headrace.wal.dynamodb import DynamoWal
from tests.support.builders import first_entry, next_entry
import os
wal = DynamoWal(open_machine(os.environ).store(), {"wal": "wal-0"})
entry = first_entry(sys.argv[1])
while True:
    wal.commit(entry)
    print(entry.slot, flush=True)
    entry = next_entry(entry, b"x")
"""


def test_what_processes_were_told_is_there_after_a_kill(folder: Path) -> None:
    machine = LocalMachine(folder)
    declare_tables_as_first(machine)
    logs = [log_id() for _ in range(2)]
    root = Path(__file__).parents[2]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, log],
            env={**environment_of(folder), "PYTHONPATH": str(root), "PATH": ""},
            cwd=root,
            stdout=subprocess.PIPE,
        )
        for log in logs
    ]
    told: list[int] = []
    for process in processes:
        assert process.stdout is not None
        for _ in range(20):
            process.stdout.readline()
        process.kill()
        told.append(len(process.stdout.read().splitlines()) + 20)
        process.wait()
        process.stdout.close()
    wal = DynamoWal(LocalMachine(folder).store(), {"wal": "wal-0"})
    for log, count in zip(logs, told, strict=True):
        assert len(wal.read(log).entries) in (count, count + 1)


def declare_tables_as_first(machine: LocalMachine) -> None:
    declare_table(machine.database, "wal-0", Shape((("log_id", "S"), ("slot", "N")), stream="NEW_IMAGE"))


def test_a_newer_database_is_refused(folder: Path) -> None:
    Database(folder).write(lambda connection: connection.execute("PRAGMA user_version = 99"))
    with pytest.raises(NewerDatabase, match="upgrade"):
        Database(folder)


def test_a_folder_of_an_older_format_keeps_its_items(folder: Path) -> None:
    shape = Shape((("id", "S"), ("at", "N")), expires="until")
    declare_table(Database(folder), "t", shape)
    item = {"id": s("a"), "at": n(-1), "until": n(100), "data": {"B": b"x" * 100_000}}
    SqliteStore(Database(folder)).call("PutItem", {"TableName": "t", "Item": item})
    with closing(sqlite3.connect(folder / "tables.db")) as older:
        older.executescript("""
            CREATE TABLE formerly (
                tbl INTEGER NOT NULL, hash BLOB NOT NULL, range BLOB NOT NULL, item BLOB NOT NULL, expires INTEGER,
                PRIMARY KEY (tbl, hash, range)) WITHOUT ROWID;
            INSERT INTO formerly SELECT * FROM items;
            DROP TABLE items;
            ALTER TABLE formerly RENAME TO items;
            CREATE INDEX expiring ON items (expires) WHERE expires IS NOT NULL;
            PRAGMA user_version = 2;
        """)
    store = SqliteStore(Database(folder))
    key = {"TableName": "t", "Key": {"id": s("a"), "at": n(-1)}}
    assert store.call("GetItem", key) == {"Item": item}
    assert (store.expire(100), store.expire(101)) == (0, 1)
    assert store.call("GetItem", key) == {}


def test_changes_are_told_in_order_and_kept_until_every_reader_is_done(folder: Path, bell: Bell) -> None:
    machine = LocalMachine(folder)
    tables = declare_tables(machine)
    wal, database = DynamoWal(machine.store(), tables), machine.database
    sealer, relay = TableCheckpoint(database, "sealer"), TableCheckpoint(database, "relay")
    assert (sealer.load(), relay.load()) == (OLDEST, OLDEST)
    entries = [first_entry(log_id())]
    entries += [next_entry(entries[0], b"x")]
    for entry in entries:
        wal.commit(entry)
    wal.commit(entries[1])  # refused: no change
    wal.remove(entries[0].log_id, [entries[0].slot])

    streams, arn = Streams(database, bell), stream_arn(tables["wal"])

    def read(position: Position) -> list[Any]:
        shard = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"][0]["ShardId"]
        where = {"SequenceNumber": position.sequence} if position.sequence else {}
        iterator = streams.get_shard_iterator(StreamArn=arn, ShardId=shard, ShardIteratorType=position.kind, **where)[
            "ShardIterator"
        ]
        return streams.get_records(ShardIterator=iterator, Limit=100)["Records"]

    records = read(OLDEST)
    assert [record["eventName"] for record in records] == ["INSERT", "INSERT", "REMOVE"]
    assert [record["dynamodb"]["Keys"]["slot"]["N"] for record in records] == [
        str(entries[number].slot) for number in (0, 1, 0)
    ]
    assert records[1]["dynamodb"]["NewImage"]["kind"] == s(entries[1].kind)
    assert "payload" not in records[1]["dynamodb"]["NewImage"], "which would be written twice"
    assert "NewImage" not in records[2]["dynamodb"]
    numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
    sealer.save(Position("AFTER_SEQUENCE_NUMBER", numbers[2]))
    assert len(read(OLDEST)) == 3, "the relay has read nothing"
    relay.save(Position("AT_SEQUENCE_NUMBER", numbers[1]))
    assert [record["dynamodb"]["SequenceNumber"] for record in read(OLDEST)] == numbers[1:]
    assert TableCheckpoint(database, "relay").load() == Position("AT_SEQUENCE_NUMBER", numbers[1])
    forget_readers(database, ["sealer"])
    sealer.save(Position("AT_SEQUENCE_NUMBER", numbers[2]))
    assert [record["dynamodb"]["SequenceNumber"] for record in read(OLDEST)] == numbers[2:]


def test_a_commit_wakes_who_waits_for_it(folder: Path, bell: Bell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_BELL", str(folder / "bell"))
    database = Database(folder)
    declare_queue(database, "q", Queue())
    queues, url = Queues(database, bell), queue_url("q")
    threading.Timer(0.1, lambda: queues.send_message(QueueUrl=url, MessageBody="x")).start()
    began = time.monotonic()
    (message,) = queues.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    assert message["Body"] == "x"
    assert time.monotonic() - began < 10


def test_the_rings_of_a_busy_writer_are_few(folder: Path, bell: Bell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_BELL", str(folder / "bell"))
    for _ in range(50):
        ring()
    time.sleep(0.5)  # more rings than are allowed would have come by now
    assert 1 <= bell.rings <= 5


def test_a_secret_is_made_once_and_only_its_owner_reads_it(folder: Path) -> None:
    secrets, name = Secrets(folder), "arn:aws:secretsmanager:us-east-1:123456789012:secret:Key"
    secrets.create("Key")
    made = secrets.get_secret_value(SecretId=name)
    secrets.create("Key")
    assert Secrets(folder).get_secret_value(SecretId=name) == made
    secrets.put_secret_value(SecretId=name, SecretString="other")
    assert secrets.get_secret_value(SecretId=name)["SecretString"] == "other"
    (path,) = (folder / "secrets").iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_version_of_a_secret_becomes_the_current_one_only_in_place_of_the_one_that_was_expected(
    folder: Path,
) -> None:
    secrets = Secrets(folder)
    first = secrets.put_secret_value(SecretId="Key", SecretString="first")["VersionId"]

    def replace(text: str) -> None:
        version = secrets.put_secret_value(SecretId="Key", SecretString=text, VersionStages=["NEXT"])["VersionId"]
        assert secrets.get_secret_value(SecretId="Key")["SecretString"] != text
        secrets.update_secret_version_stage(
            SecretId="Key", VersionStage="AWSCURRENT", RemoveFromVersionId=first, MoveToVersionId=version
        )

    replace("second")
    with pytest.raises(ClientError, match="InvalidParameterException"):
        replace("third")
    assert secrets.get_secret_value(SecretId="Key")["SecretString"] == "second"
    assert sorted(path.name for path in (folder / "secrets").iterdir()) == [".lock", "Key"]


def test_a_rule_goes_on_where_it_was_when_the_machine_was_switched_off(database: Database) -> None:
    runs, start = TableRuns(database), datetime(2026, 1, 1, tzinfo=UTC)
    fired: list[datetime] = []

    class Runtime:
        def invoke(self, event: Any) -> tuple[Any, str]:
            fired.append(now)
            stop.set()
            return None, "id"

    def run(at: datetime, waits: bool = False) -> None:
        nonlocal now
        now = at
        stop.clear()
        pump = SchedulePump(ScheduleTrigger("F", "Audit", "rate(1 day)"), Runtime(), clock=lambda: now, runs=runs)
        if waits:
            threading.Timer(0.1, stop.set).start()
        pump.run(stop)

    now, stop = start, threading.Event()
    run(start)
    run(start + timedelta(hours=23), waits=True)
    run(start + timedelta(hours=25))
    assert fired == [start, start + timedelta(hours=25)]
    assert TableRuns(database).load("Audit") == start + timedelta(hours=25)


def test_a_rule_that_ran_when_the_clock_was_ahead_runs_again(database: Database) -> None:
    runs, now = TableRuns(database), datetime(2026, 1, 1, tzinfo=UTC)
    runs.save("Audit", now + timedelta(days=300))
    rule = ScheduleTrigger("F", "Audit", "rate(1 day)")
    pump = SchedulePump(rule, None, clock=lambda: now, runs=runs)  # type: ignore[arg-type]  # it is not called
    assert pump._first() == now + timedelta(days=1)


class TestQueues:
    @pytest.fixture
    def queues(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> Queues:
        self.now_ms = 1_000_000
        monkeypatch.setattr("local.machine.queues._now_ms", lambda: self.now_ms)
        declare_queue(database, "dead", Queue())
        declare_queue(database, "q", Queue(visibility_s=30, dead="dead", receives=2, notices=(("logs/", ".zst"),)))
        declare_queue(database, "f", Queue(visibility_s=20, delay_s=2, is_fifo=True))
        return Queues(database)

    def receive(self, queues: Queues, name: str = "q") -> list[Any]:
        found = queues.receive_message(QueueUrl=queue_url(name), MaxNumberOfMessages=10)
        return list(found.get("Messages", []))

    def delete(self, queues: Queues, messages: list[Any], name: str = "q") -> None:
        entries = [{"Id": str(number), "ReceiptHandle": one["ReceiptHandle"]} for number, one in enumerate(messages)]
        queues.delete_message_batch(QueueUrl=queue_url(name), Entries=entries)

    def test_a_message_comes_again_until_it_is_deleted_and_dies_in_the_end(self, queues: Queues) -> None:
        queues.send_message(QueueUrl=queue_url("q"), MessageBody="x", DelaySeconds=5)
        assert self.receive(queues) == []
        self.now_ms += 5_000
        (first,) = self.receive(queues)
        assert (first["Body"], first["Attributes"]["ApproximateReceiveCount"]) == ("x", "1")
        assert self.receive(queues) == []
        self.now_ms += 30_000
        (second,) = self.receive(queues)
        assert second["Attributes"]["ApproximateReceiveCount"] == "2"
        self.delete(queues, [first])  # a receipt of before
        self.now_ms += 30_000
        assert self.receive(queues) == []
        (dead,) = self.receive(queues, "dead")
        self.delete(queues, [dead], "dead")
        attributes = queues.get_queue_attributes(QueueUrl=queue_url("dead"), AttributeNames=["All"])["Attributes"]
        assert attributes["ApproximateNumberOfMessagesNotVisible"] == "0"

    def test_messages_of_a_group_come_one_after_the_other_and_repeats_do_not(self, queues: Queues) -> None:
        def send(group: str, body: str) -> None:
            entry = {"Id": "0", "MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": group + body}
            queues.send_message_batch(QueueUrl=queue_url("f"), Entries=[entry])

        for group, body in (("a", "1"), ("a", "1"), ("a", "2"), ("b", "3")):
            send(group, body)
        assert self.receive(queues, "f") == []
        self.now_ms += 2_000
        found = self.receive(queues, "f")
        assert [one["Body"] for one in found] == ["1", "3"]
        assert self.receive(queues, "f") == []
        self.delete(queues, found, "f")
        assert [one["Body"] for one in self.receive(queues, "f")] == ["2"]
        send("a", "1")
        self.now_ms += 300_000
        send("a", "1")
        attributes = queues.get_queue_attributes(QueueUrl=queue_url("f"), AttributeNames=["All"])["Attributes"]
        assert attributes["ApproximateNumberOfMessagesDelayed"] == "1", "the repeat after five minutes is a new one"

    def test_a_long_queue_is_not_searched_for_each_message(self, queues: Queues, database: Database) -> None:
        for name, family in (("f", "a"), ("q", "")):
            for start in range(0, 2000, 100):
                entries = [
                    {"Id": str(i), "MessageBody": "x", "MessageGroupId": family, "MessageDeduplicationId": str(i)}
                    for i in range(start, start + 100)
                ]
                queues.send_message_batch(QueueUrl=queue_url(name), Entries=entries)
        self.now_ms += 2_000
        taken = {name: self.receive(queues, name) for name in ("f", "q")}
        assert {name: len(found) for name, found in taken.items()} == {"f": 1, "q": 10}
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1000
            return 0

        database._writer.set_progress_handler(count, 1000)
        assert self.receive(queues, "f") == [], "the first of the group is being worked on"
        assert steps < 300_000
        steps = 0
        self.delete(queues, taken["q"])
        assert steps < 10_000
        assert [one["Body"] for one in self.receive(queues)] == ["x"] * 10

    def test_a_new_object_is_told_to_the_queue_that_wants_to_know(self, queues: Queues) -> None:
        for key in ("logs/a b.zst", "logs/a.parquet", "jobs/a.zst"):
            queues.note_object(key)
        (message,) = self.receive(queues)
        assert '"key":"logs%2Fa+b.zst"' in message["Body"]
