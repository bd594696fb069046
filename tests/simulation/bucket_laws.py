"""The laws at the bucket: what may be put there and deleted, anyone who asked for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from functions.sealer import trim
from headrace import clock
from headrace.manifest import manifest as manifests
from headrace.manifest import merging
from headrace.manifest.manifest import Manifest, ManifestPage, Replaced
from headrace.manifest.store import ManifestStore
from headrace.objects import keys
from headrace.segment.reader import read_data
from headrace.tables.catalog import Row
from headrace.tables.unborn import UNBORN
from headrace.wal.state import Entry
from tests.simulation.answers import Answers
from tests.simulation.log_model import LogModel

if TYPE_CHECKING:
    from tests.simulation.world import World


class BucketLaws(Answers):
    """Watches effects: methods are named `before_` or `after_`, the port, the call."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.manifests: dict[str, list[Manifest]] = {}
        self._replaced: dict[str, Replaced] = {}  # segments that were merged, by key
        self._forgotten: set[str] = set()  # logs whose announcement was removed by a sweep
        self._late: set[str] = set()  # of these, those with objects that came later; and all that a disaster met

    def before_objects_put(self, key: str, data: bytes) -> None:
        """Nothing is overwritten, and nothing comes unannounced."""
        self._law("an object has a log, or is announced")
        log_id = keys.log_of(key)
        if not self._is_known(log_id):
            if log_id not in self._forgotten:
                self._broken(self.law, key)
            self._late.add(log_id)  # held up for long; who put it, announces it again, unless it dies now
        self._law("objects never change")
        standing = self._world.objects._objects.get(key)
        if standing is not None and standing != data:
            self._broken(self.law, key)

    def after_objects_create(self, created: bool, key: str, data: bytes) -> None:
        """A manifest may have been published."""
        if not created:
            return
        self._law("objects never change")
        if self._world.objects._objects[key] != data:
            self._broken(self.law, key)
        if "/manifests/" in key:
            self._published(manifests.decode(data, key))

    def _published(self, manifest: Manifest) -> None:
        self._law("published is complete, disjoint and true")
        if keys.tombstone(manifest.log_id) in self._world.objects._objects:
            return  # a sealer that began before the end
        if manifest.state.recoveries and self._world.model.recovering:
            self._recovered(manifest)
        log = self._world.model.logs[manifest.log_id]
        done = self.manifests.setdefault(manifest.log_id, [])
        name = f"{manifest.log_id[-8:]}/{manifest.generation}"
        if manifest.generation != len(done) + 1:
            self._broken(self.law, f"{name} after {len(done)} generations")
        index = log.position_of(manifest.last_slot, manifest.last_id)
        if index is None:
            self._broken(self.law, f"{name} ends with an entry that is not in the log: {manifest.last_slot}")
            return
        last = log.entries[index]
        if manifest.state != last.state or manifest.end_offset != last.next_offset or manifest.config != log.config:
            self._broken(self.law, f"{name} has another state than its last entry")
        following = log.entries[index + 1].slot if index + 1 < len(log.entries) else manifest.end_slot
        if not last.slot < manifest.end_slot <= following:
            self._broken(self.law, f"{name} ends at a wrong slot")
        start = done[-1].end_offset if done else log.config.base_offset
        if done and manifest.end_slot == done[-1].end_slot:
            is_drop = manifest.begin_offset != done[-1].begin_offset
            (self._drops if is_drop else self._merges)(done[-1], manifest, name)
            start = manifest.begin_offset
        if not done and not log.purgeable:  # else by a sealer that began before its end, after its source was purged
            for ancestor in log.config.lineage:
                published = self.manifests.get(ancestor.log_id)
                if (published[-1].end_offset if published else 0) < ancestor.through:
                    self._broken("a fork is published after its source", name)
        self._compare(log, manifest, start, name)
        done.append(manifest)

    def _merges(self, before: Manifest, manifest: Manifest, name: str) -> None:
        """A generation that seals nothing has fewer segments; that they hold the same is seen by reading them."""
        self._law("a merge replaces segments, and changes nothing else")
        if manifest.segment_count >= before.segment_count or manifest.pages != before.pages:
            self._broken(self.law, f"{name} has {manifest.segment_count} segments, had {before.segment_count}")
        standing = {segment.key for segment in self.segments(manifest)}
        gone = [segment.key for segment in self.segments(before) if segment.key not in standing]
        named = {one.key: one for one in manifest.replaced}
        if not set(gone) <= set(named):
            self._broken(self.law, f"{name} does not say that it replaces {gone}")
        self._replaced |= named

    def _drops(self, before: Manifest, manifest: Manifest, name: str) -> None:
        """A generation that drops segments has all the others, and no record at the floor or after it is lost."""
        self._law("only what is below the floor is dropped")
        standing = {one.key for one in self.segments(manifest)}
        gone = [segment for segment in self.segments(before) if segment.key not in standing]
        if any(segment.end_offset > manifest.state.floor for segment in gone) or manifest.begin_offset > (
            gone[-1].end_offset if gone else before.begin_offset
        ):
            self._broken(self.law, f"{name} has dropped {gone}, floor={manifest.state.floor}")
        at_ms = manifest.created_ms
        self._replaced |= {one.key: Replaced(one.key, manifest.generation, at_ms) for one in gone}

    def _recovered(self, manifest: Manifest) -> None:
        """A recovery publishes its entry first, and has it written then: it is the next entry from now on."""
        model, log_id = self._world.model, manifest.log_id
        log = model.logs.get(log_id)
        if log is not None and log.position_of(manifest.last_slot, manifest.last_id) is not None:
            return
        entry = Entry(
            log_id=log_id,
            slot=manifest.last_slot,
            kind="recover",
            state=manifest.state,
            request_ids=(manifest.last_id,),
            committed_ms=manifest.last_committed_ms,
            prev_slot=log.tip.slot if log is not None else -1,
            prev_id=log.tip.id if log is not None else "",
            config=manifest.config,
        )
        model.commit(entry, self._world.scheduler.step())

    def _compare(self, log: LogModel, manifest: Manifest, start: int, name: str) -> None:
        """What is published from `start` on is what the log holds there."""
        objects: Any = self._world.objects
        at = start
        for segment in ManifestStore(objects).segments_from(manifest, start):
            if segment.first_offset != at:
                self._broken(self.law, f"{name} has segment {segment.first_offset} where {at} follows")
            data = read_data(objects, segment, at, 10**6, 10**9)
            if data != self._world.model.slice(log, at, at + len(data)):
                self._broken(self.law, f"{name} holds other records from {at} on")
            at += len(data)
        if at != manifest.end_offset:
            self._broken(self.law, f"{name} ends at {manifest.end_offset}, its segments at {at}")

    def before_objects_delete(self, doomed: Iterable[str]) -> None:
        """Nothing that is needed goes."""
        for key in doomed:
            self._law("nothing needed is deleted")
            _, log_id, folder, *_ = key.split("/")
            log = self._world.model.logs.get(log_id)
            if log is None or log.purgeable:
                continue
            done = self.manifests.get(log_id)
            if folder == "wal":
                end = self.published_end(log_id)
                if any(entry.payload_key == key for entry in reversed(log.entries) if entry.slot >= end):
                    self._broken(self.law, f"payload of an unpublished entry: {key}")
            elif folder == "segments" and done:
                segment_key = key.removesuffix(".keys.zst").removesuffix(".parquet") + ".parquet"
                if segment_key in {one.key for one in self.segments(done[-1])}:
                    self._broken(self.law, key)
                self._may_go(segment_key, done[-1])
            elif folder == "registry":
                self._broken(self.law, key)
            elif folder in ("dead", "snapshots"):
                if key in self._named(log, done or []):
                    self._broken(self.law, key)
            elif folder == "manifests":
                if done and key in self._pages(done[-1].pages, done[-1].begin_number):
                    self._broken(self.law, key)
                number = keys.generation(key)
                if number is not None:
                    self._generation_may_go(number, log_id)

    def _named(self, log: LogModel, done: Sequence[Manifest]) -> set[str]:
        """Returns the keys of what entries that stand and the last two manifests name: objects, and their pages."""
        standing, objects = self._world.raw["wal"]._entries, self._world.objects._objects
        # After an entry was trimmed, a dead item may be in its slot.
        slots = ((entry, standing.get((log.log_id, entry.slot))) for entry in log.entries)
        states = [entry.state for entry, one in slots if one is not None and one.id == entry.id]
        states += [one.state for one in done[-2:]]
        found = set[str]()
        for state in states:
            for key in state.named_objects(log.log_id):
                pages = state.extension.named_pages(key, objects[key]) if state.extension is not None else ()
                found |= {key, *pages}
        return found

    def _pages(self, parts: Sequence[Any], begin: int) -> set[str]:
        """Returns the keys of the pages among these parts and below them, without those of dropped segments alone."""
        pages = [part for part in parts if isinstance(part, ManifestPage) and part.end_number > begin]
        store = ManifestStore(self._world.objects)
        return {page.key for page in pages}.union(*(self._pages(store.parts(page), begin) for page in pages))

    def _generation_may_go(self, number: int, log_id: str) -> None:
        """A newer one is named by the watermark, and has stood for a while; the first stays."""
        self._law("replaced generations stay a while")
        world, done = self._world, self.manifests[log_id]
        named = world.raw["watermarks"].get(log_id).generation
        replaced_ms = next((one.created_ms for one in done if one.generation == number + 1), None)
        if number == 1 or number >= named or replaced_ms is None:
            self._broken(self.law, f"generation {number}, the watermark names {named}")
        elif world.true_ms - replaced_ms + self._off_ms() < trim.KEPT_MS:
            self._broken(self.law, f"generation {number} was replaced {world.true_ms - replaced_ms} ms ago")

    def _may_go(self, key: str, newest: Manifest) -> None:
        """Readers of the generations before have had their time."""
        replaced = self._replaced.get(key)
        if replaced is None:
            return
        self._law("replaced segments stay a while")
        world = self._world
        ages = 1 if newest.generation - replaced.generation >= 2 else merging.IDLE_AGES
        age_ms = world.true_ms - replaced.at_ms + self._off_ms()
        if age_ms < ages * world.settings.merge_retire_ms:
            self._broken(self.law, f"{key} was replaced by generation {replaced.generation}, {age_ms} ms ago")

    def _off_ms(self) -> int:
        """Returns how far the clocks of two processes may be apart: one that follows the tables follows them loosely."""
        return 2 * (self._world.plan.weather.skew_ms + clock._OFF_MS)

    def segments(self, manifest: Manifest) -> Iterable[Any]:
        """Returns the segments of a generation, from what is in the bucket."""
        objects: Any = self._world.objects
        return ManifestStore(objects).segments_from(manifest, manifest.begin_offset)

    def published_end(self, log_id: str) -> int:
        """Slot after the last published entry, as the bucket has it."""
        published = self.manifests.get(log_id)
        return published[-1].end_slot if published else 0

    # Creates that failed.

    def _is_known(self, log_id: str) -> bool:
        """Returns whether a log was created, or a row announces it."""
        model, rows = self._world.model, self._world.raw["catalog"].rows
        return log_id in model.logs or log_id in model.lost or (UNBORN, log_id) in rows

    def after_catalog_remove(self, _: None, row: Row) -> None:
        """Its objects should be gone by now, unless it was buried again meanwhile."""
        if (UNBORN, row.log_id) not in self._world.raw["catalog"].rows:
            self._forgotten.add(row.log_id)

    def excuse_what_stands(self) -> None:
        """A disaster took rows: of what is in the bucket now, no announcement need tell."""
        self._late |= set(map(keys.log_of, self._world.objects._objects))

    def _unborn(self) -> None:
        self._law("nothing of a create that failed remains")
        for key in self._world.objects._objects:
            if not self._is_known(keys.log_of(key)) and keys.log_of(key) not in self._late:
                self._broken(self.law, key)
        for surface, name in self._world.raw["catalog"].rows:
            if surface == UNBORN:
                self._broken(self.law, f"announcement of {name[-8:]}")
