"""The database of a single machine: one SQLite file in WAL mode that several processes use at once.

A write is acknowledged when SQLite has synced it to the disk (`synchronous=FULL`). Writes that meet in one process share a
transaction, and so one sync: while one thread waits for the disk, those behind it gather, and the next of them commits all.
Processes take turns by a lock on a file, which wakes the next one at once; SQLite's own lock would make it sleep and look
again. Readers wait for nobody: each sees the last commit.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import StoreError, StoreThrottled, StoreTimeout
from local.machine.bell import ring

log = logging.getLogger("headrace.machine")
FORMAT = 3
_PAGE_BYTES = 8192
_CHECKPOINT_PAGES = 2000
_TURN_SECONDS = 2.0  # for the turn to write, as for a call of DynamoDB
_PAUSE_SECONDS = 1.0  # before a patient repeat
_BUSY_SECONDS = 30.0  # for what is not behind the lock of the file: recovery after a crash, when a process opens it
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tables (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, shape BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS items (
    tbl INTEGER NOT NULL, hash BLOB NOT NULL, range BLOB NOT NULL, item BLOB NOT NULL, expires INTEGER,
    UNIQUE (tbl, hash, range));
CREATE INDEX IF NOT EXISTS expiring ON items (expires) WHERE expires IS NOT NULL;
CREATE TABLE IF NOT EXISTS entries (
    tbl INTEGER NOT NULL, idx TEXT NOT NULL, index_hash BLOB NOT NULL, index_range BLOB NOT NULL,
    hash BLOB NOT NULL, range BLOB NOT NULL,
    PRIMARY KEY (tbl, idx, index_hash, index_range, hash, range)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changes (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, tbl INTEGER NOT NULL, change BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS readers (name TEXT PRIMARY KEY, position TEXT NOT NULL, oldest INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS schedules (rule TEXT PRIMARY KEY, ran_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, shape BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, body TEXT NOT NULL, visible_ms INTEGER NOT NULL,
    sent_ms INTEGER NOT NULL, receives INTEGER NOT NULL DEFAULT 0, first_ms INTEGER, receipt TEXT,
    family TEXT NOT NULL DEFAULT '', attributes BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS due ON messages (queue, visible_ms);
CREATE INDEX IF NOT EXISTS families ON messages (queue, family, number) WHERE family <> '';
CREATE TABLE IF NOT EXISTS repeats (
    queue TEXT NOT NULL, id TEXT NOT NULL, until_ms INTEGER NOT NULL,
    PRIMARY KEY (queue, id)) WITHOUT ROWID;
"""
# Of formats 1 and 2, where the key's index held the items: each look at a large one, for its key, read all its pages.
_ITEMS_APART = f"""
ALTER TABLE items RENAME TO together;
DROP INDEX expiring;
{_SCHEMA}
INSERT INTO items SELECT tbl, hash, range, item, expires FROM together;
DROP TABLE together;
"""

T = TypeVar("T")
Cursor = sqlite3.Connection


class NewerDatabase(Exception):
    """A newer release wrote the folder."""


class _NoTurn(Exception):
    """Another process does not end its write."""


class _Job:
    """A write that waits for its transaction, and what became of it. It has failed until its transaction is committed."""

    __slots__ = ("error", "is_abandoned", "is_done", "refused", "result", "waits", "work")

    def __init__(self, work: Callable[[Cursor], Any], *, waits: bool) -> None:
        self.work = work
        self.waits = waits
        self.is_abandoned = False
        self.is_done = False
        self.result: Any = None
        self.refused: Refused | None = None
        self.error: Exception | None = StoreTimeout("the thread that committed the write was interrupted")

    def run(self, connection: Cursor) -> None:
        self.refused = None
        try:
            self.result = self.work(connection)
        except Refused as exc:
            self.refused = exc


class _Turns:
    """The turns of processes to write: a lock on a file. A wait for such a lock has no timeout, so a thread of its own
    waits, and the caller waits for the thread. One thread at a time may call it.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._changed = threading.Condition()
        self._is_waiting = False
        self._is_wanted = False

    def take(self, seconds: float | None) -> bool:
        """Waits for a turn, at most some seconds, and returns whether it came; then `end` it."""
        with self._changed:
            if not self._is_waiting:
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._is_waiting = True
                    threading.Thread(target=self._wait, name="turn", daemon=True).start()
                else:
                    return True
            self._is_wanted = True
            try:
                return self._changed.wait_for(lambda: not self._is_waiting, seconds)
            finally:
                self._is_wanted = False

    def end(self) -> None:
        """Lets the next process write."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def _wait(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._changed:
            self._is_waiting = False
            if self._is_wanted:
                self._changed.notify()
            else:
                self.end()


class Refused(Exception):
    """The base class of what a write raises before it has changed anything: the others of its transaction go on."""


class Database:
    """The connections of one process: one that writes, and one for each thread that reads. Thread-safe.

    Attributes:
        is_patient: repeats what the disk refuses until it does not: for a dispatcher, which has nobody to tell.
    """

    is_patient = False

    def __init__(self, folder: Path) -> None:
        """Opens the database of a folder, and creates it first if need be. Raises NewerDatabase."""
        self._path = folder / "tables.db"
        self._turns = _Turns(folder / "tables.lock")
        self._turn = threading.Lock()
        self._waiting: deque[_Job] = deque()
        self._own = threading.local()
        self._bell_is_due = False
        self._is_failing = False
        with self._alone(None):
            self._writer = self._connection()
            (version,) = self._writer.execute("PRAGMA user_version").fetchone()
            if version > FORMAT:
                raise NewerDatabase(f"format {version} of {self._path} is newer than {FORMAT}: upgrade headrace")
            if version < FORMAT:
                made = _ITEMS_APART if version else _SCHEMA
                self._writer.executescript(f"BEGIN;{made}PRAGMA user_version = {FORMAT};COMMIT;")

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Returns the rows of one query, which sees all that was committed before it. Raises StoreTimeout if the disk
        fails.
        """
        return self.read_page(sql, values, sys.maxsize)[0]

    def read_page(self, sql: str, values: Sequence[Any], most_bytes: int) -> tuple[list[Any], bool]:
        """Returns the first rows of one query, as many as have about `most_bytes` in their first columns, and at least one;
        and whether there are more. Raises as `read` does.
        """
        return self._repeated(lambda: self._read_page(sql, values, most_bytes))

    def _read_page(self, sql: str, values: Sequence[Any], most_bytes: int) -> tuple[list[Any], bool]:
        rows: list[Any] = []
        try:
            connection = getattr(self._own, "reader", None)
            if connection is None:
                connection = self._own.reader = self._connection()
            cursor = connection.execute(sql, values)
            if most_bytes == sys.maxsize:
                return cursor.fetchall(), False
            for row in cursor:
                most_bytes -= len(row[0])
                if rows and most_bytes < 0:
                    cursor.close()
                    return rows, True
                rows.append(row)
        except sqlite3.OperationalError as exc:
            raise StoreTimeout(f"the database does not answer: {exc}") from exc
        return rows, False

    def write(self, work: Callable[[Cursor], T], *, waits: bool = True) -> T:
        """Runs `work` in a transaction, perhaps together with the work of other threads, and returns its result when the
        transaction is on the disk. `work` may run twice: its transaction may fail because of another's work.

        Args:
            waits: False for what may be lost with the power of the machine. It survives a kill, and is on the disk with the
                next write that waits.

        Raises:
            Refused: `work` raised it; it must not have changed anything before.
            StoreThrottled: the disk is full, or another process does not end its write; nothing was written.
            StoreTimeout: the disk fails or hangs; the transaction may have been committed.
        """
        return self._repeated(lambda: self._write(work, waits=waits))

    def _repeated(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except StoreError:
                if not self.is_patient:
                    raise
            time.sleep(_PAUSE_SECONDS)  # polls: a full disk does not tell when it has room

    def _write(self, work: Callable[[Cursor], T], *, waits: bool) -> T:
        job = _Job(work, waits=waits)
        until = time.monotonic() + _TURN_SECONDS
        self._waiting.append(job)
        if not self._turn.acquire(timeout=_TURN_SECONDS):
            job.is_abandoned = True
            raise StoreTimeout(f"another write is under way for {_TURN_SECONDS} s")
        try:
            if not job.is_done:
                waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
                self._commit([one for one in waiting if not one.is_abandoned], until)
        finally:
            self._turn.release()
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    def ring_after_commit(self) -> None:
        """Has the bell rung after the commit of the running transaction: it has something for those who wait. For the work
        of `write`.
        """
        self._bell_is_due = True

    def _commit(self, jobs: list[_Job], until: float) -> None:
        """Runs the jobs in one transaction, whose turn must come before `until` (monotonic); if one of them fails, each in
        its own.
        """
        try:
            with (
                self._alone(max(0.0, until - time.monotonic())),
                self._transaction(waits=any(job.waits for job in jobs)),
            ):
                for job in jobs:
                    job.run(self._writer)
        except _NoTurn:
            for job in jobs:
                job.error = StoreThrottled("another process does not end its write")
        except sqlite3.OperationalError as exc:
            for job in jobs:
                job.error = _translate(exc)
            if not self._is_failing:
                log.error("the database does not commit: %s", exc)
            self._is_failing = True
        except Exception as exc:  # noqa: BLE001 - it is raised to the caller of its job
            if len(jobs) > 1:
                for job in jobs:
                    self._commit([job], time.monotonic() + _TURN_SECONDS)
            else:
                jobs[0].error = exc
        else:
            for job in jobs:
                job.error = job.refused
            self._is_failing = False
        for job in jobs:
            job.is_done = True
        if self._bell_is_due:
            self._bell_is_due = False
            ring()

    @contextmanager
    def _transaction(self, *, waits: bool) -> Iterator[None]:
        self._writer.execute(f"PRAGMA synchronous={'FULL' if waits else 'NORMAL'}")
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    @contextmanager
    def _alone(self, seconds: float | None) -> Iterator[None]:
        """Keeps other processes from writing. Raises _NoTurn if some seconds do not suffice."""
        if not self._turns.take(seconds):
            raise _NoTurn
        try:
            yield
        finally:
            self._turns.end()

    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        for pragma in (f"page_size={_PAGE_BYTES}", "journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}").fetchall()
        return connection


def _translate(exc: sqlite3.OperationalError) -> StoreError:
    """Returns the error of the ports for one of a transaction. Where the disk is full, SQLite fails before it writes what
    makes a transaction one that is committed; where a sync fails, after it.
    """
    kind = StoreThrottled if exc.sqlite_errorcode == sqlite3.SQLITE_FULL else StoreTimeout
    return kind(f"the database does not commit: {exc}")
