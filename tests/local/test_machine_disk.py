"""The single machine on a disk that is full, fails, or loses with the power what was not synced."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import StoreThrottled, StoreTimeout
from headrace.tables.items import n, s
from local.machine import files
from local.machine.database import Database
from local.machine.objects import FileObjects
from local.machine.services import Secrets
from local.machine.shapes import Shape
from local.machine.stack import FolderInUse, FolderUnusable, MachineDeployment
from local.machine.tables import SqliteStore, declare_table


@pytest.fixture
def objects(folder: Path) -> FileObjects:
    return FileObjects(folder)


class Names:
    """The names that Python code has given to files and folders, and that no sync has brought to the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unsynced = set[Path]()
        self.syncs = list[Path]()
        for function, place in (("mkdir", 0), ("link", 1), ("replace", 1), ("rename", 1)):
            monkeypatch.setattr(os, function, self._noting(getattr(os, function), place))
        monkeypatch.setattr(os, "fsync", self._fsync)

    def _noting(self, function: Callable[..., Any], place: int) -> Callable[..., Any]:
        def noted(*arguments: Any, **more: Any) -> Any:
            answer = function(*arguments, **more)
            self.unsynced.add(Path(arguments[place]))
            return answer

        return noted

    def _fsync(self, number: int) -> None:
        path = Path(f"/proc/self/fd/{number}").readlink()
        self.syncs.append(path)
        self.unsynced = {name for name in self.unsynced if name.parent != path}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


def test_every_name_is_on_the_disk_when_a_call_returns(folder: Path, names: Names) -> None:
    with MachineDeployment(folder / "new" / "deep") as deployment:
        assert names.unsynced == set()
        deployment.cloud.create_secret("Key")
        assert names.unsynced == set()
    data = folder / "new" / "deep"
    objects, secrets = FileObjects(data), Secrets(data)
    for write in (objects.put, objects.create):
        write(f"a/b/{write.__name__}", b"x")
        assert names.unsynced == set(), write
    assert not objects.create("a/b/put", b"y")
    current = secrets.get_secret_value(SecretId="Key")["VersionId"]
    pending = secrets.put_secret_value(SecretId="Key", SecretString="new", VersionStages=["pending"])["VersionId"]
    assert names.unsynced == set()
    secrets.update_secret_version_stage(
        SecretId="Key", VersionStage="AWSCURRENT", RemoveFromVersionId=current, MoveToVersionId=pending
    )
    assert names.unsynced == set()
    assert secrets.get_secret_value(SecretId="Key")["SecretString"] == "new"


def test_a_folder_that_is_of_no_use_says_why(folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(FolderUnusable, match="file/data can't be used"):
        MachineDeployment(folder / "file" / "data")
    (folder / "tables.db").write_bytes(b"no database" * 1000)
    for _ in range(2):  # the first one has let its lock go
        with pytest.raises(FolderUnusable, match="file is not a database"):
            MachineDeployment(folder)
    (folder / "tables.db").unlink()
    with MachineDeployment(folder), pytest.raises(FolderInUse):
        MachineDeployment(folder)
    MachineDeployment(folder).__exit__()


def test_a_folder_that_another_process_has_just_created_is_synced_too(objects: FileObjects, names: Names) -> None:
    folder = objects.path("a/b/c").parent
    folder.mkdir(parents=True)
    assert names.unsynced == {folder, folder.parent}
    objects.put("a/b/c", b"x")
    assert names.unsynced == set()


def test_a_folder_that_vanishes_is_created_again(objects: FileObjects, names: Names) -> None:
    for _ in range(2):
        objects.put("a/b/c", b"x")
        assert names.unsynced == set()
        objects.delete(["a/b/c"])
        assert not objects.path("a/b/c").parent.parent.exists()


def test_a_reader_believes_an_object_only_when_its_name_is_on_the_disk(
    objects: FileObjects, folder: Path, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process reads what one has linked, but not synced yet."""
    other, sync = FileObjects(folder), files.sync
    path = objects.path("manifests/1")
    seen = list[bytes]()

    def read_first(synced: Path) -> None:
        if path.exists() and not seen:
            seen.append(b"")
            assert path in names.unsynced
            seen.append(other.get("manifests/1"))
            assert path not in names.unsynced, "it was read before it was on the disk"
        sync(synced)

    monkeypatch.setattr(files, "sync", read_first)
    assert objects.create("manifests/1", b"x")
    assert seen == [b"", b"x"]
    names.syncs.clear()
    assert (other.get("manifests/1"), other.get_range("manifests/1", 0, 9)) == (b"x", b"x")
    assert names.syncs == [], "nothing is synced twice"


@contextmanager
def failing(number: int) -> Iterator[None]:
    """Has each sync from Python code fail, as that of a full disk does."""

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        yield


@pytest.mark.parametrize(
    ("number", "meaning"), [(errno.ENOSPC, StoreThrottled), (errno.EDQUOT, StoreThrottled), (errno.EIO, StoreTimeout)]
)
def test_an_object_that_the_disk_refuses_leaves_nothing(
    objects: FileObjects, folder: Path, number: int, meaning: type[Exception]
) -> None:
    objects.put("a/other", b"x")
    for write in (objects.put, objects.create):
        with failing(number), pytest.raises(meaning):
            write("a/b", b"x")
        assert list(objects.list("")) == ["a/other"]
        assert list((folder / "unnamed").iterdir()) == []
    assert objects.create("a/b", b"y")


def test_a_name_that_could_not_be_synced_may_be_there(objects: FileObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    objects.put("a/other", b"x")

    def fail(_: Path) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(files, "sync", fail)
    with pytest.raises(StoreTimeout):
        objects.create("a/b", b"x")
    assert objects.path("a/b").exists()


def test_what_a_killed_writer_left_is_removed_and_what_is_written_is_not(objects: FileObjects, folder: Path) -> None:
    left = folder / "unnamed" / "left"
    left.write_bytes(b"x")
    with files.unnamed(folder, b"y") as unnamed:
        files.forget_unnamed(folder)
        assert (left.exists(), unnamed.read_bytes()) == (False, b"y")
    assert list((folder / "unnamed").iterdir()) == []


def test_a_file_that_gets_its_name_while_the_rest_is_removed_is_no_error(
    objects: FileObjects, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, left = folder / "unnamed" / "named", folder / "unnamed" / "left"
    for path in (named, left):
        path.write_bytes(b"x")
    monkeypatch.setattr(os, "sync", named.unlink)
    files.forget_unnamed(folder)
    assert list((folder / "unnamed").iterdir()) == []


def test_a_file_that_vanishes_while_it_is_written_ends_the_write(
    objects: FileObjects, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hardlink_to = Path.hardlink_to

    def vanish(path: Path, target: Path) -> None:
        target.unlink(missing_ok=True)
        hardlink_to(path, target)

    monkeypatch.setattr(Path, "hardlink_to", vanish)
    with pytest.raises(StoreTimeout, match="vanished"):
        objects.create("a/b", b"x")


def put(store: SqliteStore, at: int, size: int = 1) -> None:
    item = {"id": s("a"), "at": n(at), "data": {"B": b"x" * size}}
    store.call("PutItem", {"TableName": "t", "Item": item})


@pytest.fixture
def store(database: Database) -> SqliteStore:
    declare_table(database, "t", Shape((("id", "S"), ("at", "N"))))
    return SqliteStore(database)


def slots(store: SqliteStore) -> list[int]:
    key = {"KeyConditionExpression": "id = :id", "ExpressionAttributeValues": {":id": s("a")}}
    return [int(item["at"]["N"]) for item in store.call("Query", {"TableName": "t", **key})["Items"]]


def limit_pages(database: Database, more: int) -> None:
    """Has SQLite find the disk full when the database has grown by some pages."""
    (pages,) = database._writer.execute("PRAGMA page_count").fetchone()
    database._writer.execute(f"PRAGMA max_page_count = {pages + more}").fetchone()


def test_a_full_disk_refuses_writes_certainly_and_for_as_long_as_it_is_full(
    database: Database, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    put(store, 1)
    limit_pages(database, 1)
    for _ in range(2):
        with pytest.raises(StoreThrottled, match="full"):
            put(store, 2, 100_000)
    assert [record.message for record in caplog.records] == ["the database does not commit: database or disk is full"]
    assert slots(store) == [1]
    limit_pages(database, 1000)
    put(store, 2, 100_000)
    assert slots(store) == [1, 2]


def test_a_dispatcher_waits_until_there_is_room(
    database: Database, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("local.machine.database._PAUSE_SECONDS", 0.01)
    limit_pages(database, 1)
    database.is_patient = True
    threading.Timer(0.1, lambda: limit_pages(database, 1000)).start()
    put(store, 1, 100_000)
    assert slots(store) == [1]


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Holds the turn to write, as a process does that was stopped in the moment of a write."""
    with (folder / "tables.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_write_waits_for_a_stopped_process_no_longer_than_for_dynamodb(
    store: SqliteStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("local.machine.database._TURN_SECONDS", 0.2)
    outcomes = list[str]()

    def write(at: int) -> None:
        try:
            put(store, at)
        except (StoreThrottled, StoreTimeout) as exc:
            outcomes.append(type(exc).__name__)

    put(store, 0)
    with held(folder):
        for _ in range(2):  # of which the second finds a thread that waits already
            threads = [threading.Thread(target=write, args=(at,)) for at in range(1, 5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)
                assert not thread.is_alive()
        assert len(outcomes) == 8
        assert "StoreThrottled" in outcomes
        assert slots(store) == [0], "readers wait for nobody"
    put(store, 9)
    assert slots(store) == [0, 9], "what was given up is not written later"
    with Path(folder / "tables.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no thread has kept it


def test_a_turn_comes_as_soon_as_another_process_ends_its_write(store: SqliteStore, folder: Path) -> None:
    holds, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with held(folder):
            holds.set()
            may_end.wait(10)

    other = threading.Thread(target=hold)
    other.start()
    holds.wait(10)
    threading.Timer(0.1, may_end.set).start()
    put(store, 1)
    assert slots(store) == [1]
    other.join()


def test_a_write_whose_committing_thread_is_interrupted_is_not_acknowledged(database: Database) -> None:
    """One thread commits for others; Ctrl-C in it must not look like success to them."""
    outcomes = dict[str, str]()
    may_go = threading.Event()

    def write(name: str, work: Callable[[Any], object]) -> None:
        try:
            database.write(work)
            outcomes[name] = "acknowledged"
        except BaseException as exc:  # noqa: BLE001 - one of them is interrupted
            outcomes[name] = type(exc).__name__

    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    works: dict[str, Callable[[Any], object]] = {
        "first": lambda _: may_go.wait(10),
        "second": lambda connection: connection.execute("INSERT INTO schedules VALUES ('second', 1)"),
        "third": interrupt,
        "fourth": lambda connection: connection.execute("INSERT INTO schedules VALUES ('fourth', 1)"),
    }
    threads = [threading.Thread(target=write, args=each) for each in works.items()]
    threads[0].start()
    while not database._turn.locked() or database._waiting:
        time.sleep(0.001)  # polls: a lock does not tell who takes it
    for thread in threads[1:]:
        thread.start()
    while len(database._waiting) < 3:
        time.sleep(0.001)  # polls: a queue does not tell who joins it
    may_go.set()
    for thread in threads:
        thread.join()
    assert outcomes.pop("first") == "acknowledged"
    assert sorted(outcomes.values()) == ["KeyboardInterrupt", "StoreTimeout", "StoreTimeout"]
    assert database.read("SELECT rule FROM schedules") == []
    database.write(works["second"])
    assert database.read("SELECT rule FROM schedules") == [("second",)]
