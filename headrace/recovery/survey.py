"""Reads the facts of every log from the bucket and the tables. Writes nothing.

One listing of the bucket finds the logs. Each log then costs its two small objects, its newest manifest, and four
reads of tables. Logs that only the catalog knows are included, and damaged rows of it of which no log tells; logs that only
the write-ahead log knows can't be found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace

from headrace.clock import Threads
from headrace.errors import Damaged
from headrace.log.stores import Stores
from headrace.manifest import invariants
from headrace.manifest.manifest import Description, Manifest, Tombstone, decode
from headrace.objects import ObjectMissing, Objects, keys, packed
from headrace.recovery.report import Progress, no_progress
from headrace.tables.catalog import DamagedRow, Row
from headrace.tables.follows import Follow
from headrace.tables.watermarks import Watermark
from headrace.wal.state import Entry, LogConfig, LogState, incarnation_of, offset_of_slot

ALONE = Threads(1, "survey")
AT_ONCE = 256  # logs between two reports of progress
_PAGE = 1000
_REWRITTEN_MS = 60_000  # servers' clocks differ less
M = TypeVar("M", Description, Tombstone)

Tail = Literal["none", "behind", "joins", "diverged"]


class Listed(msgspec.Struct):
    """What a listing of the bucket shows of one log: whether it has `log.json` and `deleted.json`, the numbers of its
    manifest generations, and the highest slot of its payload objects (None: it has none).
    """

    log_id: str
    described: bool = False
    tombstoned: bool = False
    generations: tuple[int, ...] = ()
    payload_slot: int | None = None  # the highest of a payload object


class Facts(msgspec.Struct, frozen=True):
    """The facts about one log.

    Attributes:
        config: its configuration, from the newest manifest, `log.json`, `deleted.json` or its catalog row; None if
            unknown.
        manifest: the newest generation, without its segments.
        newest: the newest entry.
        has_older: whether there are entries before it.
        tail: how the write-ahead log relates to the manifest: it is empty; its newest entry is before the published
            end; it continues the manifest (or nothing is published); it has another history.
        followers: number of its followers that stay, by their rows; None if it has been purged.
        followed_ms: when the last of the others ends (epoch ms), by their rows; 0 if there are none.
        touched_ms: when a read last renewed its sliding TTL (epoch ms); 0 if it has none.
        row: the catalog row of the log's name, perhaps for another log.
        damage: why the bucket's objects can't be trusted; empty if they can.
        row_damage: the catalog row of the name if it can't be read.
    """

    log_id: str  # empty if only a damaged row is known, which does not tell it
    config: LogConfig | None = None
    tombstone: Tombstone | None = None
    manifest: Manifest | None = None
    newest: Entry | None = None
    has_older: bool = False
    tail: Tail = "none"
    watermark: Watermark = Watermark()
    followers: int | None = None
    followed_ms: int = 0
    touched_ms: int = 0
    row: Row | None = None
    payload_slot: int | None = None
    damage: str = ""
    row_damage: DamagedRow | None = None

    @property
    def is_lost(self) -> bool:
        """Whether nothing tells which log it was; then nothing of it had been published."""
        return self.config is None and self.newest is None and not self.damage and self.row_damage is None

    @property
    def state(self) -> LogState | None:
        """The state as of the newest entry that can be trusted, or else as published; None if unknown."""
        if self.newest is not None and (self.tail == "joins" or self.manifest is None):
            return self.newest.state
        return self.manifest.state if self.manifest is not None else None

    @property
    def incarnation(self) -> int:
        """The current incarnation, as far as known; -1 if nothing tells which log it is."""
        if self.config is None:
            return -1
        return incarnation_of(self.config, self.state or LogState())

    @property
    def is_superseded(self) -> bool:
        """Whether the catalog row of the name is of a log that was created later."""
        if self.row is None or self.config is None or self.own_row is not None:
            return False
        younger, older = self.row.config, self.config
        return (younger.incarnation, younger.created_ms) > (older.incarnation, older.created_ms)

    @property
    def uncounted(self) -> int:
        """How many more followers that stay have rows than the state counts; negative if it counts more."""
        if self.followers is None or self.state is None or self.state.ended:
            return 0
        return self.followers - self.state.followers

    @property
    def own_row(self) -> Row | None:
        """The catalog row of the log, for a companion derived from that of its main log; None if the name has no row, or
        one of another log.
        """
        logs = self.row.logs if self.row is not None else ()
        return next((log for log in logs if log.log_id == self.log_id), None)


def survey(stores: Stores, progress: Progress = no_progress, threads: Threads = ALONE) -> list[Facts]:
    """Returns the facts of every log that the bucket or the catalog knows, by log id, then those of damaged rows that tell
    of no log.
    """
    listed = {one.log_id: one for one in list_logs(stores.objects)}
    rows: dict[str, Row] = {}
    damaged: list[DamagedRow] = []
    for row in (row for surface in stores.surfaces for row in rows_of(stores, surface)):
        if isinstance(row, Row):
            rows |= {log.log_id: log for log in row.logs}
        else:
            damaged.append(row)
    found: dict[str, Facts] = {}
    wanted = sorted(listed.keys() | rows.keys() | {row.log_id for row in damaged if row.log_id})
    while wanted:
        looks = partial(_look_at, stores, listed, rows)
        for start in range(0, len(wanted), AT_ONCE):
            progress("surveying", start, len(wanted))
            found |= {one.log_id: one for one in threads.map(looks, wanted[start : start + AT_ONCE])}
        # Some are met only as what is under another log's name, as companions, or as sources; of others the bucket has
        # objects, but only a log that was looked at beside them tells what they are.
        known = [one.row for one in found.values() if one.row is not None]
        known += [
            Row(one.log_id, one.config) for one in found.values() if one.config is not None and not one.config.role
        ]
        rows = {log.log_id: log for row in known for log in row.logs}
        others = {log_id for one in found.values() if one.config is not None for log_id in others_of(one.config)}
        unexplained = {log_id for log_id in rows if log_id in found and found[log_id].config is None}
        wanted = sorted(((rows.keys() | others) - found.keys()) | unexplained)
    unread = list(_unread(found, damaged))
    found |= {one.log_id: one for one in unread if one.log_id}
    return [*(found[log_id] for log_id in sorted(found)), *(one for one in unread if not one.log_id)]


def _unread(found: Mapping[str, Facts], damaged: Iterable[DamagedRow]) -> Iterator[Facts]:
    """Yields facts of the damaged rows that no log has met as the row of its name: those of the row's log if nothing else
    tells its name, else of no log.
    """
    met = {(row.surface, row.name) for row in (one.row_damage for one in found.values()) if row is not None}
    for row in damaged:
        if (row.surface, row.name) in met:
            continue
        log = found.get(row.log_id)
        yield replace(log if log is not None and log.config is None else Facts(""), row_damage=row)


def _look_at(stores: Stores, listed: Mapping[str, Listed], rows: Mapping[str, Row], log_id: str) -> Facts:
    return look(stores, listed.get(log_id) or Listed(log_id), rows.get(log_id))


def list_logs(objects: Objects, prefix: str = keys.ROOT) -> Iterator[Listed]:
    """Yields the logs that have objects, in order; costs one listing."""
    names = (key.removeprefix(keys.ROOT) for key in objects.list(prefix))
    for log_id, group in groupby(names, lambda name: name.partition("/")[0]):
        one = Listed(log_id)
        generations = []
        for name in group:
            folder, _, rest = name.partition("/")[2].partition("/")
            one.described |= folder == "log.json"
            one.tombstoned |= folder == "deleted.json"
            number = rest.partition(".")[0]
            if folder == "manifests" and number.isdigit():
                generations.append(int(number))
            if folder == "wal" and rest.partition("-")[0].isdigit():
                one.payload_slot = max(one.payload_slot or 0, int(rest.partition("-")[0]))
        one.generations = tuple(sorted(generations))
        yield one


def look(stores: Stores, listed: Listed, row: Row | None = None) -> Facts:
    """Reads the facts of one log. `row` tells what it is if nothing else does. Damaged objects are noted in the facts, not
    raised.
    """
    log_id = listed.log_id
    tombstone = description = manifest = None
    damage, row_damage = "", None
    try:
        if listed.tombstoned:
            tombstone = read_mark(stores.objects, keys.tombstone(log_id), Tombstone)
        if listed.described:
            description = read_mark(stores.objects, keys.description(log_id), Description)
        if listed.generations and tombstone is None:
            manifest = _manifest(stores.objects, log_id, listed.generations[-1])
    except Damaged as exc:
        damage = str(exc)
    rows = list(_followers(stores, log_id)) if not listed.tombstoned else None  # before the entry that counts them
    newest = stores.wal.newest(log_id)
    oldest = stores.wal.read(log_id, limit=1).entries if newest is not None else []
    config = _config(manifest, tombstone, description, row, *oldest)
    touched_ms = 0
    if config is not None:
        try:
            row = stores.catalog.get(config.surface, config.name)
        except Damaged as exc:
            row, row_damage = None, DamagedRow(config.surface, config.name, log_id, str(exc))
        touched_ms = stores.watermarks.usage(log_id).touched_ms if config.ttl_ms is not None else 0
    return Facts(
        log_id=log_id,
        config=config,
        tombstone=tombstone,
        manifest=replace(manifest, pages=(), open_page=()) if manifest is not None else None,
        newest=replace(newest, payload=None) if newest is not None else None,
        has_older=newest is not None and oldest[0].slot < newest.slot,
        tail=_tail(stores, newest, manifest, oldest, is_gone=listed.tombstoned),
        watermark=stores.watermarks.get(log_id),
        followers=sum(one.stays for one in rows) if rows is not None else None,
        followed_ms=max((one.until_ms for one in rows or ()), default=0),
        touched_ms=touched_ms,
        row=row,
        payload_slot=listed.payload_slot,
        damage=damage,
        row_damage=row_damage,
    )


def _followers(stores: Stores, log_id: str) -> Iterator[Follow]:
    after = ""
    while True:
        rows = stores.follows.of(log_id, after=after, limit=_PAGE)
        yield from rows
        if len(rows) < _PAGE:
            return
        after = rows[-1].key


def read_mark(objects: Objects, key: str, type_: type[M]) -> M | None:
    """Reads `log.json` or `deleted.json`; None if it does not exist.

    Raises:
        NewerFormat: a newer release wrote the object.
        Damaged: the object is invalid.
    """
    try:
        return packed.parse(objects.get(key), type_, key)
    except ObjectMissing:
        return None


def _manifest(objects: Objects, log_id: str, generation: int) -> Manifest:
    key = keys.manifest(log_id, generation)
    try:
        manifest = decode(objects.get(key), key)
    except ObjectMissing as exc:
        raise Damaged(f"manifest is missing: object={key}") from exc
    if (manifest.log_id, manifest.generation) != (log_id, generation):
        raise Damaged(f"manifest is in the wrong place: object={key}")
    invariants.check_whole(manifest)
    return manifest


def _config(
    manifest: Manifest | None,
    tombstone: Tombstone | None,
    description: Description | None,
    row: Row | None,
    oldest: Entry | None = None,
) -> LogConfig | None:
    sources = (tombstone, manifest, description, row, oldest)
    return next((one.config for one in sources if one is not None and one.config is not None), None)


def _tail(
    stores: Stores, newest: Entry | None, manifest: Manifest | None, oldest: list[Entry], *, is_gone: bool
) -> Tail:
    if newest is None:
        return "none"
    if is_gone:
        return "joins"  # a purge leaves the newest entry alone
    if manifest is None:
        return "joins" if oldest[0].prev_slot < 0 else "diverged"
    last = (manifest.last_slot, manifest.last_id)
    if newest.slot < manifest.end_slot:
        if (newest.slot, newest.id) == last:
            return "joins"
        # Written into its place after that had been published: the tables were rewound, and used before a recovery.
        is_rewritten = (
            newest.slot == manifest.last_slot or newest.committed_ms > manifest.end_published_ms + _REWRITTEN_MS
        )
        return "diverged" if is_rewritten else "behind"
    (first,) = stores.wal.read(newest.log_id, start=manifest.end_slot, limit=1).entries
    return "joins" if (first.prev_slot, first.prev_id) == last else "diverged"


def others_of(config: LogConfig) -> set[str]:
    """Returns the ids of the logs from which a fork was made and reads; for a companion, of its main log."""
    made_from = {config.source.log_id} if config.source is not None else set()
    return made_from | {ancestor.log_id for ancestor in config.lineage} | ({config.main} if config.main else set())


def rows_of(stores: Stores, surface: str) -> Iterator[Row | DamagedRow]:
    """Yields all rows of a surface, also of logs that have ended, because their entries may be lost or older than the
    end.
    """
    after = ""
    while True:
        rows = stores.catalog.every(surface, after=after, limit=_PAGE)
        yield from rows
        if len(rows) < _PAGE:
            return
        after = rows[-1].name


def payload_offset(facts: Facts) -> int | None:
    """Returns the offset of the highest payload object, at which records were once written; None if there is none."""
    return offset_of_slot(facts.payload_slot) if facts.payload_slot is not None else None
