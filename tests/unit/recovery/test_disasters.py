"""Random histories, then a disaster, a recovery, more history, and again: the laws hold for every seed."""

from __future__ import annotations

import random

import pytest

from functions.sealer.purge import purge
from functions.sealer.seal import SourceUnsealed
from functions.sealer.trim import trim
from headrace.errors import Conflict, Gone, NotFound
from headrace.log.requests import At
from headrace.objects import keys
from headrace.streams.values import STREAMS
from headrace.wal.memory import MemoryWal
from headrace.wal.state import Cursor
from tests.unit.recovery.world import AGE_S, Ruins

NAMES = ("a", "b", "c", "d", "e")


class History:
    """What clients did to a world, and what they hold it to."""

    def __init__(self, seed: int) -> None:
        self.world = Ruins()
        self.chance = random.Random(seed)
        self.data: dict[str, list[bytes]] = {}  # of living names
        self.closed: set[str] = set()
        self.ids: set[str] = set()
        self.earlier: MemoryWal | None = None

    def step(self) -> None:
        name = self.chance.choice(NAMES)
        verb = self.chance.choice(
            ("create", "fill", "fill", "fill", "fork", "close", "delete", "seal", "seal", "trim", "purge", "snap")
        )
        if verb == "create" and name not in self.data:
            self._create(name, None)
        elif verb == "fork" and name not in self.data and self.data:
            self._create(name, self.chance.choice(sorted(self.data)))
        elif verb == "fill" and name in self.data and name not in self.closed:
            self.data[name] += self.world.fill(name, self.chance.randint(1, 4), self.chance.randint(1, 3))
        elif verb == "close" and name in self.data and self.chance.random() < 0.3:
            self.world.close(name)
            self.closed.add(name)
        elif verb == "delete" and name in self.data and self.chance.random() < 0.5:
            self.world.logs.delete(name)
            self.forget(name)
        elif verb == "seal" and name in self.data:
            self.world.seal(self.log_id(name))
        elif verb in ("trim", "purge") and self.ids:
            log_id = self.chance.choice(sorted(self.ids))
            self.world.wait(AGE_S)
            (trim if verb == "trim" else purge)(self.world.parts, log_id)  # type: ignore[operator]
        elif verb == "snap":
            self.earlier = self.world.snapshot()
        self.world.wait(1)

    def _create(self, name: str, source: str | None) -> None:
        try:
            self.ids.add(self.world.create(name) if source is None else self.world.fork(name, source))
        except Conflict:
            return  # forks need what had the name
        self.data[name] = list(self.data[source]) if source is not None else []

    def forget(self, name: str) -> None:
        del self.data[name]
        self.closed.discard(name)

    def log_id(self, name: str) -> str:
        row = self.world.stores.catalog.get(STREAMS, name)
        assert row is not None
        return row.log_id

    def published_end(self, log_id: str) -> int | None:
        manifest = self.world.manifest(log_id)
        return manifest.end_offset if manifest is not None else None

    def disaster(self) -> None:
        """One of three, a recovery, and what must hold then."""
        world = self.world
        before = {name: (self.log_id(name), world.logs.head(name)) for name in self.data}
        published = {name: self.published_end(log_id) for name, (log_id, _) in before.items()}
        gone = {log_id for log_id in self.ids if keys.tombstone(log_id) in world.bucket()}
        kind = self.chance.choice(("all", "all", "catalog", "rewind"))
        if kind == "rewind" and self.earlier is not None:
            world.rewind(self.earlier)
            self.earlier = None
        elif kind == "catalog":
            world.lose_catalog()
        else:
            kind = "all"
            world.lose_tables()
        if kind != "rewind":
            self.earlier = None
        report = {log.log_id: log for log in world.recover(rewound=kind == "rewind").logs}
        assert not world.recover().changed
        refused = {log.log_id for log in report.values() if log.status == "refused"}
        found = [one for one in world.verify().findings if one.severity == "error" and one.log_id not in refused]
        assert not found

        living: dict[str, list[bytes]] = {}
        for name in NAMES:
            try:
                head = world.logs.head(name)
            except (NotFound, Gone):
                assert published.get(name) is None, f"{name} was published and is gone: {report}"
                continue
            assert head.log_id not in gone, "a deleted log lives"
            living[name] = world.read(name)
            if name not in before or before[name][0] != head.log_id:
                continue  # an end that was not published is forgotten
            said = self.data[name]
            assert living[name] == said[: len(living[name])]
            assert len(living[name]) >= (published[name] or 0)
            old = before[name][1]
            if kind == "catalog":
                assert living[name] == said
            elif len(said) > len(living[name]):
                assert head.incarnation > old.incarnation
                with pytest.raises(Gone):
                    world.read(name, At(cursor=Cursor(old.incarnation, len(said))))
            incarnations = {head.config.incarnation, *(one.incarnation for one in head.state.recoveries)}
            if old.incarnation not in incarnations:
                continue  # the entry of an earlier recovery was itself lost: its cursors are refused
            position = self.chance.randint(0, len(living[name]))
            assert world.read(name, At(cursor=Cursor(old.incarnation, position))) == living[name][position:]
        self.data = living
        self.closed = {name for name in living if world.logs.head(name).state.is_final}
        self.ids |= {self.log_id(name) for name in living}


@pytest.mark.parametrize("seed", range(60))
def test_laws_hold_through_disasters(seed: int) -> None:
    history = History(seed)
    for _ in range(4):
        for _ in range(40):
            history.step()
        for name, data in history.data.items():
            assert history.world.read(name) == data
        history.disaster()
    for name in history.data:
        try:
            history.world.seal(history.log_id(name))
        except SourceUnsealed as exc:
            raise AssertionError(name) from exc
    for name, data in history.data.items():
        assert history.world.read(name) == data
