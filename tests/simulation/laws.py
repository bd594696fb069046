"""The laws at the tables, and at rest: what may take effect there, anyone who asked for it. See also `bucket_laws`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from functions.queue import Message
from headrace.definition import COLUMNS, Document
from headrace.errors import Damaged, HeadraceError, StoreError
from headrace.objects import keys, packed
from headrace.tables.catalog import PutRow
from headrace.tables.counters import Count
from headrace.tables.follows import DropFollow, Follow
from headrace.tables.items import Guard
from headrace.tables.producers import PutProducer
from headrace.tables.unborn import UNBORN
from headrace.topics.values import TIMINGS
from headrace.wal import Committed, Outcome
from headrace.wal.entry import PutEntry
from headrace.wal.state import Entry
from tests.simulation import definitions
from tests.simulation.bucket_laws import BucketLaws
from tests.simulation.log_model import LogModel
from tests.simulation.ports import QueueFailed

if TYPE_CHECKING:
    from tests.simulation.world import World

# One, and one more for each fault that keeps its note away. A run of many seeds prints how many there were.
MOST_GOING_ON = 6


class Judge(BucketLaws):
    """Watches effects: methods are named `before_` or `after_`, the port, the call."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._ends: dict[str, int] = {}  # watermarks: slot after the last published entry
        self._rows: dict[tuple[str, str], tuple[int, int]] = {}  # producers' rows: epoch, seq

    # The write-ahead log.

    def after_wal_commit(
        self, outcome: Outcome, entry: Entry, guards: Sequence[Guard] = (), read_ms: int | None = None
    ) -> None:
        """The model follows."""
        if not isinstance(outcome, Committed):
            return
        world = self._world
        step = world.scheduler.step()
        expires = entry.kind == "expire" and self._due(entry)
        in_chain = world.model.commit(entry, step)
        if world.tracing and not in_chain:
            world.trace(f"   DEAD item: {entry.kind} at {entry.offset}+{entry.slot % 10**9}")
        if in_chain and entry.kind in ("create", "define") and entry.state.definition not in (COLUMNS, TIMINGS):
            self._defines(entry)
        if in_chain and expires and entry.committed_ms < expires:
            self._broken("expiry", f"{entry.log_id} ended at {entry.committed_ms}, due at {expires}")
        world.stream.setdefault(entry.log_id, []).append(entry)
        told = [entry] if in_chain else []
        for guard in guards:
            match guard:
                case PutEntry(other):
                    is_other = world.model.commit(other, step)
                    in_chain = is_other and in_chain
                    told += [other] if is_other else []
                    world.stream.setdefault(other.log_id, []).append(other)
                case PutRow(row, _):
                    world.model.name_given(row.name, row.log_id, step)
                case DropFollow(follow):
                    world.followers.left(follow)
                case PutProducer(log_id, producer):
                    self._law("a producer's row is never set back")
                    before = self._rows.get((log_id, producer.id), (0, -1))
                    is_gone = world.model.logs[log_id].purgeable  # its rows, too: nobody asks what comes hours late
                    if (producer.epoch, producer.seq) < before and not is_gone:
                        self._broken(self.law, f"{log_id[-8:]} {producer} row={before}")
                    self._rows[log_id, producer.id] = (producer.epoch, producer.seq)
        for one in told:
            world.followers.committed(world.model.logs[one.log_id], one)
        if any(isinstance(guard, Count) for guard in guards) and not world.model.recovering:
            world.limits.judge()
        if guards and not world.model.recovering:
            self._law("what joins a commit counts as its entry does")
            if not in_chain:
                self._broken(self.law, f"{entry.log_id[-8:]} at {entry.slot} is dead, and {guards} took effect")

    def _defines(self, entry: Entry) -> None:
        """The definition that an entry names is there for anyone who reads the entry."""
        if entry.kind == "define":
            self._listed(entry)
        self._law("a definition exists before it is named")
        ref = entry.state.definition
        if ref is None:
            return
        stored = self._world.objects._objects.get(keys.definition(entry.log_id, ref.number, ref.nonce))
        found = None if stored is None else packed.decode(stored, Document, "simulation")
        if found is None or (found.registry.current_version, found.own["kind"]) != (
            ref.schema_version,
            ref.label,
        ):
            self._broken(self.law, f"{entry.log_id[-8:]} {ref} {found}")

    def _listed(self, entry: Entry) -> None:
        """A change of the profile is a change of the row; a write that comes hours late can set that back for a while."""
        self._law("listings show the profile in force")
        log = self._world.model.logs[entry.log_id]
        row = self._world.raw["catalog"].get(log.config.surface, log.config.name)
        if row.label != entry.state.label != log.entries[-2].state.label:
            self._broken(self.law, f"{row.name} shows {row.label}: {entry.state.definition}")

    def _due(self, entry: Entry) -> int:
        self._law("expiry")
        return self.deadline_ms(self._world.model.logs[entry.log_id])

    def deadline_ms(self, log: LogModel) -> int:
        """Before this time a log does not expire."""
        if log.config.expires_at_ms is not None:
            return log.config.expires_at_ms
        if log.config.ttl_ms is None:
            return 2**60
        touched_ms: int = self._world.raw["watermarks"].usage(log.log_id).touched_ms
        renewals = [one.committed_ms for one in log.entries if one.kind in ("create", "data", "close")]
        renewals += [
            one.committed_ms
            for one, before in zip(log.entries[1:], log.entries, strict=False)
            if len(one.state.recoveries) > len(before.state.recoveries)
        ]
        return max(log.config.created_ms, touched_ms, *renewals) + log.config.ttl_ms

    def before_wal_remove(self, log_id: str, slots: Iterable[int]) -> None:
        """Trimmed ⊆ published, and the newest entry stays."""
        entries = self._world.raw["wal"]._entries
        for slot in slots:
            entry = entries.get((log_id, slot))
            if entry is not None:
                self._removable(entry)

    def before_wal_remove_dead(self, entry: Entry) -> None:
        """The same."""
        standing = self._world.raw["wal"]._entries.get((entry.log_id, entry.slot))
        if standing is not None and standing.request_ids == entry.request_ids:
            self._removable(standing)

    def _removable(self, entry: Entry) -> None:
        self._law("trimmed is published")
        log = self._world.model.logs[entry.log_id]
        if (entry.slot, entry.id) == (log.tip.slot, log.tip.id):
            self._broken("the newest entry stays", f"{entry.log_id[-8:]} slot={entry.slot}")
        if not log.purgeable and entry.slot >= self.published_end(entry.log_id):
            self._broken(self.law, f"{entry.log_id[-8:]} slot={entry.slot} end={self.published_end(entry.log_id)}")

    def after_follows_remove(self, done: bool, follow: Follow) -> None:
        """One that lasted for a while went."""
        if done:
            self._world.followers.left(follow)

    def after_producers_purge(self, _: None, log_id: str) -> None:
        """A recovery forgets what it can't trust: those in the state are known still."""
        log = self._world.model.logs.get(log_id)
        if log is not None and self._world.model.recovering:
            kept = {one.id for one in log.tip.state.producers}
            log.producers = {name: known for name, known in log.producers.items() if name in kept}
            log.topic.keys.clear()
        self._rows = {key: row for key, row in self._rows.items() if key[0] != log_id}

    def rewind(self) -> None:
        """The tables are others, or as they were earlier."""
        raw = self._world.raw
        self._ends = {log_id: raw["watermarks"].get(log_id).end_slot for log_id in self._world.model.logs}
        self.excuse_what_stands()
        rows = raw["producers"].rows
        self._rows = {key: (producer.epoch, producer.seq) for key, producer in rows.items()}

    # Watermarks.

    def after_watermarks_publish(
        self, raised: bool, log_id: str, generation: int, end_slot: int, end_offset: int, sealed_bytes: int
    ) -> None:
        """What the watermark says is published is published."""
        self._law("a watermark follows its manifest")
        log = self._world.model.logs[log_id]
        done = self.manifests.get(log_id, [])
        if not raised:
            return
        before = self._ends.get(log_id, 0)
        if end_slot < before:
            self._broken("a watermark never falls", f"{log_id[-8:]} from {before} to {end_slot}")
        self._ends[log_id] = end_slot
        if log.purgeable:
            return
        if generation > len(done):
            self._broken(self.law, f"{log_id[-8:]} generation={generation} published={len(done)}")
        named = done[generation - 1]
        if (named.end_slot, named.end_offset) != (end_slot, end_offset):
            self._broken(self.law, f"{log_id[-8:]} generation={generation} says another end")

    # The sealer.

    def after_queue_send(self, _: None, messages: Sequence[Message], now_ms: int) -> None:
        """Unfinished and failed work is gone on with by one message for each log and verb, and by those that crashes, lost
        answers and messages that were late made beside it.
        """
        going_on = Counter((one.verb, one.log_id) for _, one in self._world.queue.waiting if one.turn)
        for message in messages:
            if not message.turn:
                continue
            self._law("messages do not multiply")
            count = going_on[message.verb, message.log_id]
            self._world.met["messages that go on", f"{count} of one verb and log"] += 1
            if count > MOST_GOING_ON:
                self._broken(self.law, f"{count} messages go on with {message.verb} of {message.log_id[-8:]}")

    def background(self, exc: BaseException | None, log_id: str) -> None:
        """What the sealer's dispatcher swallowed."""
        if isinstance(exc, Damaged):
            log = self._world.model.logs.get(log_id)
            if log is None:
                log = next((one for one in self._world.model.logs.values() if one.log_id in str(exc)), None)
            if log is None or not log.purgeable:
                self._broken("no damage", f"{exc!r}")
        elif not isinstance(exc, (HeadraceError, StoreError, QueueFailed)):
            self._broken("no unexpected error", f"{exc!r}")

    def at_rest(self) -> None:
        """Faults are over and the sealer has had its time: nothing is left to do, and nothing was lost."""
        world = self._world
        law = "everything comes to rest by itself"
        self._law(law)
        for log in world.model.logs.values():
            if log.log_id in world.model.left_alone:
                continue
            standing = world.raw["wal"].read(log.log_id).entries
            page = [
                (entry.slot, entry.id)
                for entry in standing
                # a message of the network that is hours late may leave an item in a purged log: nothing reads it
                if not (log.purgeable and (entry.log_id, entry.slot) in world.model.dead)
            ]
            if not log.now.ended and self.published_end(log.log_id) <= log.tip.slot:
                self._broken(law, f"{log.log_id[-8:]} is not sealed: {self.published_end(log.log_id)} {page}")
            if (log.purgeable or not log.now.ended) and page != [(log.tip.slot, log.tip.id)]:
                self._broken(law, f"{log.log_id[-8:]} is not trimmed: {log.now} {page}")
            if log.purgeable and f"logs/{log.log_id}/deleted.json" not in world.objects._objects:
                self._broken(law, f"{log.log_id[-8:]} is not purged")
            self._forks(log)
        self._law("listings show the profile in force")
        for row in world.raw["catalog"].rows.values():
            if row.surface == UNBORN:
                continue
            log = world.model.logs[row.log_id]
            if not log.now.ended and row.label != definitions.facts(log.now.definition)[2]:
                self._broken(self.law, f"{row.name} shows {row.label}: {log.now.definition}")
        self._unborn()
        self._refused()
        world.model.topics.queues.at_rest()
        world.limits.at_rest()
        world.followers.at_rest()

    def _forks(self, log: LogModel) -> None:
        """Each is counted once; those that a disaster made nameless may be, or not."""
        self._law("forks are counted")
        holders = [
            one.log_id
            for one in self._world.model.logs.values()
            if one.now.holds_source and one.config.source is not None and one.config.source.log_id == log.log_id
        ]
        certain = [log_id for log_id in holders if log_id not in self._world.model.left_alone]
        if not len(certain) <= log.now.forks <= len(holders):
            self._broken(self.law, f"{log.log_id[-8:]} counts {log.now.forks}, has {len(certain)} to {len(holders)}")

    def _refused(self) -> None:
        self._law("refused is not written")
        world = self._world
        for op_id, told in self.never.items():
            if op_id in world.model.written:
                self._broken(self.law, f"operation {op_id} was told {told}, and is in the log")
