"""Verification: checks one log, or every log, end to end, and reports everything that is wrong.

If a log is written to meanwhile and its parts don't agree, they are read again. What a job at work has made and nobody
has published yet is no orphan; an object that a writer or the sealer is just publishing may still be reported as one.
The columns of a segment other than `data` can't be decoded without a Parquet library; the object's hash covers them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from headrace.clock import Threads
from headrace.errors import Damaged, HeadraceError, Overloaded, StoreError
from headrace.log.join import PayloadTrimmed, read_payload
from headrace.log.stores import Stores
from headrace.manifest.manifest import Description, Manifest, Tombstone
from headrace.objects import keys
from headrace.recovery import bucket, names
from headrace.recovery.counts import check_counts
from headrace.recovery.report import LogChecked, Notes, Progress, VerifyReport, no_progress
from headrace.recovery.survey import ALONE, AT_ONCE, Facts, Listed, list_logs, look, read_mark, survey
from headrace.tables.catalog import Row
from headrace.tables.watermarks import Watermark
from headrace.wal.state import DefinitionRef, Entry, LogConfig, LogState

_LOOKS = 3  # a sealer can publish and trim between two of ours


def verify(stores: Stores, log_id: str, progress: Progress = no_progress) -> VerifyReport:
    """Checks one log, and returns what was checked and what is wrong. Damage is reported, never raised; a store that does
    not answer is a finding, too.
    """
    return _verify(stores, log_id, progress)


def _verify(
    stores: Stores, log_id: str, progress: Progress, *, row: Row | None = None, is_superseded: bool = False
) -> VerifyReport:
    notes = Notes(log_id)
    try:
        checked = _Walk(stores, log_id, notes, progress, row, is_superseded).run()
    except (StoreError, HeadraceError) as exc:
        notes.error("log.unreadable", log_id, found=f"{type(exc).__name__}: {exc}")
        checked = LogChecked(log_id)
    return VerifyReport((checked,), tuple(notes.findings))


def verify_all(stores: Stores, progress: Progress = no_progress, threads: Threads = ALONE) -> VerifyReport:
    """Checks every log that the bucket or the catalog knows, as many at once as there are threads, and whether logs agree
    with each other; returns what was checked and what is wrong.

    Raises:
        StoreError: the logs could not be listed, or names not be counted.
    """
    logs = survey(stores, progress, threads)
    judged = names.resolve(logs)

    def checked(log: Facts) -> VerifyReport:
        is_superseded = judged.standing.get(log.log_id) == "superseded"
        return _verify(stores, log.log_id, progress, row=log.own_row, is_superseded=is_superseded)

    known = [log for log in logs if log.log_id]
    starts = range(0, len(known), AT_ONCE)
    reports = [report for start in starts for report in threads.map(checked, known[start : start + AT_ONCE])]
    between = [*_between(known, judged.forks), *_unread(logs), _counted(stores)]
    return VerifyReport(
        tuple(log for report in reports for log in report.logs),
        tuple(finding for report in [*reports, *between] for finding in report.findings),
    )


def _between(logs: list[Facts], forks: Counter[str]) -> Iterable[VerifyReport]:
    """Yields a report for each log, with an error if it has forks that it does not count, or was purged although it has
    forks; what they read could then be lost. Without that, the report is empty.
    """
    for log in logs:
        notes = Notes(log.log_id)
        counted = log.state.forks if log.state is not None else 0
        if log.tombstone is not None or counted < forks[log.log_id]:
            found = "deleted.json" if log.tombstone is not None else counted
            if forks[log.log_id]:
                notes.error("fork.uncounted", log.log_id, expected=forks[log.log_id], found=found)
        yield VerifyReport((), tuple(notes.findings))


def _counted(stores: Stores) -> VerifyReport:
    """Returns a report with a warning for each counter of names that is wrong (a limit is reached too early, or too late),
    and for each row that a surface derives from the states of its logs.
    """
    notes = Notes("")
    for one in check_counts(stores):
        notes.warn("counter.differs", one.what, expected=one.right, found=one.said)
    for what in stores.derived(stores, False):
        notes.warn("row.differs", what)
    return VerifyReport((), tuple(notes.findings))


def _unread(logs: list[Facts]) -> Iterable[VerifyReport]:
    """Yields a report for each damaged row of the catalog whose name no log tells."""
    for log in logs:
        notes = Notes(log.log_id)
        if log.row_damage is not None and log.config is None:
            where = f"{log.row_damage.surface}/{log.row_damage.name}"
            notes.error("catalog.damaged", where, found=log.row_damage.reason)
            yield VerifyReport((), tuple(notes.findings))


class _Walk:
    def __init__(
        self,
        stores: Stores,
        log_id: str,
        notes: Notes,
        progress: Progress,
        row: Row | None,
        is_superseded: bool,
    ) -> None:
        """Starts the check of one log. `row` tells what the log is if nothing else does; `is_superseded` whether
        another log owns the name.
        """
        self._row = row
        self._stores = stores
        self._log_id = log_id
        self._notes = notes
        self._progress = progress
        self._is_superseded = is_superseded

    def run(self) -> LogChecked:
        stores, log_id, notes = self._stores, self._log_id, self._notes
        prefix = keys.log_prefix(log_id)
        standing = set(stores.objects.list(prefix))  # before what names them: nothing that is named later is missed
        facts, listed = self._look()
        self._is_superseded |= facts.is_superseded
        config = facts.config
        name = config.title if config is not None else log_id
        self._progress(name, 0, 0)
        self._check_marks(listed, config)
        if config is None and not facts.is_lost and not facts.damage:
            notes.error("log.unreadable", log_id, found="nothing says what log this is")
        if facts.tombstone is not None:
            self._check_gone(facts, standing)
            return LogChecked(log_id, name, end_offset=facts.tombstone.next_offset)
        links = read_links(stores, log_id)  # soon after the manifest: what is published can be trimmed
        manifest = bucket.check_generations(stores.objects, notes, listed.generations, stores.clock.now_ms())
        segments, pages = bucket.segments_of(stores.objects, notes, manifest) if manifest is not None else ([], set())
        bucket.check_segments(
            stores.objects,
            notes,
            segments,
            lambda done: self._progress(name, done, len(segments)),
            lambda one: manifest is None or bucket.is_named_now(stores.objects, manifest, one),
        )
        is_known = manifest is not None or not listed.generations
        if is_known:
            self._check_entries(links, manifest, facts)
            named = bucket.named_objects(manifest, segments, pages)
            named |= {keys.manifest(log_id, number) for number in listed.generations}
            named |= {link.payload_key for link in links if link.payload_key is not None}
            named |= bucket.dropped_objects(manifest, standing)
            states = [one.state for one in (manifest, *links) if one is not None]
            if states:
                named |= bucket.check_own_objects(stores.objects, notes, standing, states[-1], states)
            definitions = self._definitions(config, manifest, links)
            bucket.check_definitions(stores.objects, notes, definitions)
            named |= bucket.earlier_definitions(log_id, standing, definitions)
            named |= bucket.check_indexes(stores.objects, notes, standing, stores.clock.now_ms())
            self._check_orphans(standing - named - {keys.description(log_id)})
        self._check_row(facts)
        if not self._is_superseded:
            self._check_followers(facts)
        needs_sources = facts.state is None or not facts.state.ended or facts.state.forks > 0
        if config is not None and needs_sources and not self._is_superseded:
            self._check_lineage(config)
        end = links[-1].state.next_offset if links else manifest.end_offset if manifest is not None else 0
        counts = {field: notes.counts[field] for field in ("generations", "segments", "records", "bytes", "entries")}
        return LogChecked(log_id, name, end_offset=end, **counts)

    def _look(self) -> tuple[Facts, Listed]:
        """Reads what is stored, until its parts agree or a number of tries is used up."""
        for attempt in range(_LOOKS):
            listed = next(list_logs(self._stores.objects, keys.log_prefix(self._log_id)), Listed(self._log_id))
            facts = look(self._stores, listed, self._row)
            generation = facts.manifest.generation if facts.manifest is not None else 0
            agrees = facts.tail == "joins" and facts.watermark.generation == generation and not facts.uncounted
            if agrees or facts.tombstone is not None or attempt == _LOOKS - 1:
                break
        return facts, listed

    def _check_marks(self, listed: Listed, config: LogConfig | None) -> None:
        objects, notes = self._stores.objects, self._notes
        description_key, tombstone_key = keys.description(self._log_id), keys.tombstone(self._log_id)
        try:
            description = read_mark(objects, description_key, Description)
            if description is None and listed.generations:
                notes.error("description.missing", description_key)
            elif description is not None and not listed.tombstoned and description.config != config:
                notes.error("description.differs", description_key, expected=config, found=description.config)
        except Damaged as exc:
            notes.error("description.damaged", description_key, found=exc)
        try:
            read_mark(objects, tombstone_key, Tombstone)
        except Damaged as exc:
            notes.error("tombstone.damaged", tombstone_key, found=exc)

    def _check_gone(self, facts: Facts, standing: set[str]) -> None:
        """Reports remains of a purged log that must not exist, or that say that it still lives."""
        newest = facts.newest
        if newest is not None and not newest.state.ended:
            self._notes.error("tombstone.living", keys.tombstone(self._log_id), found=f"slot {newest.slot} lives")
        self._check_orphans(standing - {keys.description(self._log_id), keys.tombstone(self._log_id)})
        if newest is not None or facts.own_row is not None or facts.row_damage is not None:
            self._check_row(facts)

    def _check_entries(self, links: list[Link], manifest: Manifest | None, facts: Facts) -> None:
        notes = self._notes
        if not links and self._is_superseded:
            notes.warn("wal.empty", self._log_id, found="its name was created again")
        elif not links and not facts.is_lost:
            notes.error("wal.empty", self._log_id)
        elif links and self._is_superseded and facts.tail == "behind":
            notes.warn("wal.behind", f"slot {links[-1].slot}", found="its name was created again")
        elif links:
            check_chain(notes, links, manifest)
        wanted = replace(facts.watermark, generation=0, end_slot=0, end_offset=0, sealed_bytes=0)
        if manifest is not None:
            wanted = replace(
                wanted,
                generation=manifest.generation,
                end_slot=manifest.end_slot,
                end_offset=manifest.end_offset,
                sealed_bytes=manifest.sealed_bytes,
            )
        if facts.watermark.generation < wanted.generation:
            notes.warn("watermark.behind", self._log_id, expected=_text(wanted), found=_text(facts.watermark))
        elif facts.watermark != wanted:
            notes.error("watermark.differs", self._log_id, expected=_text(wanted), found=_text(facts.watermark))

    @staticmethod
    def _definitions(config: LogConfig | None, manifest: Manifest | None, links: list[Link]) -> set[DefinitionRef]:
        """Returns all definitions with an object that the log names: the first one, the published one, and those in its
        entries.
        """
        named = {config.definition if config is not None else None}
        named |= {one.state.definition for one in (manifest, *links) if one is not None}
        return {ref for ref in named if ref is not None and ref.number}

    def _check_orphans(self, keys_left: set[str]) -> None:
        if keys_left:  # some may have been removed since the listing
            keys_left &= set(self._stores.objects.list(keys.log_prefix(self._log_id)))
        for key in sorted(keys_left - bucket.coming_objects(keys_left, self._stores.clock.now_ms())):
            self._notes.warn("bucket.orphan", key)

    def _check_row(self, facts: Facts) -> None:
        notes, config, row, state = self._notes, facts.config, facts.row, facts.state
        if config is None:
            return
        where = f"{config.surface}/{config.name}"
        own = facts.own_row
        if facts.row_damage is not None:
            notes.error("catalog.damaged", where, found=facts.row_damage.reason)
        elif row is None:
            if not self._is_superseded:  # else it is the row of the log that has the name
                notes.error("catalog.missing", where, expected=self._log_id)
        elif own is None:
            has_ended = state is None or bool(state.ended) or facts.tombstone is not None
            if not has_ended and not self._is_superseded:
                notes.error("catalog.differs", where, expected=self._log_id, found=row.log_id)
        elif facts.tombstone is None and own.config != config:
            notes.error("catalog.differs", where, expected=config, found=own.config)
        elif state is not None and not state.ended and row.label != state.label and not config.role:
            notes.warn("catalog.differs", where, expected=f"label {state.label}", found=f"label {row.label}")
        elif state is not None and row.ended != bool(state.ended):
            notes.warn("catalog.differs", where, expected=f"ended {state.ended!r}", found=f"ended {row.ended}")

    def _check_followers(self, facts: Facts) -> None:
        """Reports followers that the log's state does not count, and those that it counts and that are not there."""
        state = facts.state
        if state is None or state.ended:
            return
        if facts.uncounted > 0:
            self._notes.error("follower.uncounted", self._log_id, expected=facts.followers, found=state.followers)
        elif facts.uncounted < 0:
            self._notes.warn("follower.missing", self._log_id, expected=state.followers, found=facts.followers)
        if facts.followed_ms > max(state.followed_ms, self._stores.clock.now_ms()):
            found = f"until {state.followed_ms}"
            self._notes.error("follower.uncounted", self._log_id, expected=f"until {facts.followed_ms}", found=found)

    def _check_lineage(self, config: LogConfig) -> None:
        """Reports each ancestor that no longer has the offsets up to which the fork reads it."""
        for ancestor in config.lineage:
            listed = next(list_logs(self._stores.objects, keys.log_prefix(ancestor.log_id)), None)
            facts = look(self._stores, listed or Listed(ancestor.log_id))
            end = facts.state.next_offset if facts.state is not None and facts.tombstone is None else 0
            if end < ancestor.through:
                self._notes.error("lineage.short", ancestor.log_id, expected=ancestor.through, found=end)


def _text(mark: Watermark) -> str:
    return f"generation={mark.generation} slot={mark.end_slot} offset={mark.end_offset} bytes={mark.sealed_bytes}"


# The entries of one log: whether they form a chain from the published end to the newest, and whether their payloads are
# intact.


class Link(NamedTuple):
    """An entry without its payload, and what is wrong with the entry or its payload, if anything is."""

    slot: int
    id: str
    kind: str
    next_slot: int | None
    prev_slot: int
    prev_id: str
    state: LogState
    payload_key: str | None
    fault: tuple[str, str]  # kind of finding and reason; empty if there is none


def read_links(stores: Stores, log_id: str) -> list[Link]:
    """Returns every entry, ascending, without its payload. A payload that is missing or damaged is noted in the `Link`, not
    raised.
    """
    links: list[Link] = []
    start = 0
    while True:
        page = stores.wal.read(log_id, start=start)
        links += [_link(stores, entry) for entry in page.entries]
        if page.complete:
            return links
        start = page.entries[-1].slot + 1


def _link(stores: Stores, entry: Entry) -> Link:
    try:
        next_slot = entry.next_slot(deleting=True)
    except Overloaded:
        next_slot = None
    return Link(
        slot=entry.slot,
        id=entry.id,
        kind=entry.kind,
        next_slot=next_slot,
        prev_slot=entry.prev_slot,
        prev_id=entry.prev_id,
        state=entry.state,
        payload_key=entry.payload_key,
        fault=_fault(stores, entry),
    )


def _fault(stores: Stores, entry: Entry) -> tuple[str, str]:
    if entry.state.next_offset != entry.next_offset:
        return "wal.entry", f"next_offset is {entry.state.next_offset}, its records end at {entry.next_offset}"
    if sum(run.count for run in entry.times) != entry.count:
        return "wal.entry", f"it has {entry.count} records and other append times"
    try:
        read_payload(stores, entry)
    except PayloadTrimmed:
        return "payload.missing", f"slot {entry.slot}"
    except Damaged as exc:
        return "payload.damaged", str(exc)
    return "", ""


def check_chain(notes: Notes, links: list[Link], manifest: Manifest | None) -> None:
    """Follows the entries from the newest back to the published end or the log's first, as each names its predecessor; adds
    what is wrong to `notes`.
    """
    notes.counts["entries"] = len(links)
    end_slot = manifest.end_slot if manifest is not None else 0
    by_slot = {link.slot: link for link in links}
    oldest_slot = links[0].slot
    current, confirmed = links[-1], {links[-1].slot}
    _check_link(notes, current, end_slot)
    if manifest is not None and current.slot < end_slot:
        _check_last(notes, "wal.behind", (current.slot, current.id), manifest)
    while current.prev_slot >= 0:
        before = (current.prev_slot, current.prev_id)
        if manifest is not None and current.slot >= end_slot > current.prev_slot:
            _check_last(notes, "wal.join", before, manifest)
        link = by_slot.get(current.prev_slot)
        if link is not None and link.id != current.prev_id:
            link = None  # a dead item in the place of one that is published
        if link is None:
            if current.kind == "recover" and current.slot < end_slot:
                confirmed |= by_slot.keys()  # entries before a recovery are left over, and are published
            elif current.prev_slot >= end_slot:
                notes.error("wal.missing", f"slot {current.prev_slot}", expected=before)
            elif current.prev_slot > oldest_slot:
                notes.warn("wal.missing", f"slot {current.prev_slot}", expected=before)
            link = _next_below(links, current.prev_slot)
            if link is None or link.slot in confirmed:
                break
        elif link.next_slot != current.slot:
            notes.error("wal.entry", f"slot {current.slot}", expected=f"slot {link.next_slot}")
        _check_link(notes, link, end_slot)
        confirmed.add(link.slot)
        current = link
    for link in links:
        if link.slot not in confirmed:
            notes.warn("wal.dead", f"slot {link.slot}")


def _next_below(links: list[Link], slot: int) -> Link | None:
    """Returns the first entry below a gap, from which the check continues; None if there is none."""
    return next((link for link in reversed(links) if link.slot < slot), None)


def _check_last(notes: Notes, kind: str, found: tuple[int, str], manifest: Manifest) -> None:
    expected = (manifest.last_slot, manifest.last_id)
    if found != expected:
        where = f"slot {found[0]}"
        notes.error("wal.behind" if kind == "wal.behind" else "wal.join", where, expected=expected, found=found)


def _check_link(notes: Notes, link: Link, end_slot: int) -> None:
    """Adds a finding to `notes` if an entry or its payload is missing or damaged. For the payload of a published entry it
    is only a warning, because its records are read from their segment.
    """
    kind, reason = link.fault
    tell = notes.warn if link.slot < end_slot else notes.error
    where = link.payload_key or f"slot {link.slot}"
    if kind == "wal.entry":
        notes.error("wal.entry", f"slot {link.slot}", found=reason)
    elif kind == "payload.missing":
        tell("payload.missing", where, expected=reason)
    elif kind == "payload.damaged":
        tell("payload.damaged", where, found=reason)
