"""Scripted beginnings of some plans: hazards that need several rare events in one order, brought about on purpose.

A stage is a few operations on a stream of its own, at fixed times, each with the faults that it meets and nothing left to
chance. The plan's other operations follow. Hosts: api0 and api2 share one, api1 and sealer1 the other.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.plan import ANY, RECOVERY, SECOND, STAGED, TOPIC_NAMES, Disaster, Op, Scripted

NAME = "s"
_SMALL, _LARGE = 0.5, 0.95  # what an operation's second number says of its records
HOUR = 3600.0


class Stage:
    """The operations of a stage and their faults, while it is written. Times are in seconds from the beginning."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.faults: list[Scripted] = []
        self.disasters: list[Disaster] = []

    def add(
        self,
        at: float,
        slot: str,
        kind: str,
        *,
        count: float = 0.5,
        size: float = _SMALL,
        producer: float = 0.5,
        repeat: bool = False,
        name: str = NAME,
    ) -> int:
        """Adds an operation and returns its id. A sealer's is about the newest log.

        Args:
            count, size: the numbers that decide its records; `count` also where a read begins.
            producer: the number that decides whose write it is.
            repeat: whether that write was made before.
            name: what it is about.
        """
        op_id = STAGED + len(self.ops)
        dice = (0.0 if slot.startswith("sealer") else count, size, 0.5, 0.95, producer, 0.8 if repeat else 0.5)
        self.ops.append(Op(op_id, slot, f"{slot}.stage", int(at * SECOND), kind, name, dice))
        return op_id

    def fault(self, op_id: int, call: str, number: int, kind: str, seconds: float = 0) -> None:
        """Lets an operation meet a fault at its call with this number (from 1) of this kind, for so long."""
        self.faults.append(Scripted(op_id, call, number, kind, int(seconds * SECOND)))

    def go_on(self, kind: str = "append", name: str = NAME) -> None:
        """Adds what others do while a writer stands still: they use its slot, which is published and trimmed."""
        self.add(2, "api1", kind, count=0, name=name)
        self.add(3, "api1", kind, count=0, name=name)
        self.add(4, "sealer1", "seal")
        self.add(30, "sealer1", "trim")

    @property
    def has_topics(self) -> bool:
        """Whether it is about topics."""
        return any(op.name in TOPIC_NAMES for op in self.ops)

    @property
    def end(self) -> int:
        """When the plan's other operations begin, in microseconds."""
        held = max((fault.hold for fault in self.faults), default=0)
        return max(op.at for op in self.ops) + held + SECOND


def dead_item_in_the_slot() -> Stage:
    """Two writers with one picture stand still with their host, while the log goes on and their slot is trimmed. The first
    one's entry, which is longer than what the log has become, lies there dead; the second is told of it.
    """
    stage = Stage()
    stage.add(0, "api1", "create")
    stage.add(0.5, "api0", "head")
    stage.add(0.5, "api2", "head")
    first = stage.add(1, "api0", "append", count=0.99)
    stage.fault(first, "wal.commit", 1, "suspend_before", 60)
    stage.fault(first, "watermarks.get", 1, "crash_before")  # the ack fence would remove the dead item
    second = stage.add(1.0005, "api2", "append", count=0)
    stage.fault(second, "wal.commit", 2, "crash_after")
    stage.go_on()
    return stage


def dead_item_removed() -> Stage:
    """A writer stands still until its slot was trimmed, and takes back what it then puts there, which may fail."""
    stage = Stage()
    stage.add(0, "api1", "create")
    stage.add(0.5, "api0", "head")
    late = stage.add(1, "api0", "append")
    stage.fault(late, "wal.commit", 1, "suspend_before", 60)
    stage.fault(late, "wal.remove_dead", 1, ANY, 30)
    stage.go_on()
    return stage


def producer_evicted_by_a_dead_item() -> Stage:
    """A writer stands still until its slot was trimmed; its entry would take a producer from the state to a row."""
    stage = Stage()
    stage.add(0, "api1", "create")
    stage.add(0.3, "api1", "produce", producer=0)
    stage.add(0.6, "api1", "produce", producer=0.25)
    stage.add(0.9, "api0", "head")
    late = stage.add(1, "api0", "produce", producer=0.45)
    stage.fault(late, "wal.commit", 1, "suspend_before", 60)
    stage.go_on()
    return stage


def repeat_into_a_new_log() -> Stage:
    """A producer repeats a write through a process that does not know that the name has another log since."""
    stage = Stage()
    stage.add(0, "api1", "create")
    stage.add(0.5, "api1", "produce")
    stage.add(1, "api0", "head")
    stage.add(1.5, "api1", "delete")
    stage.add(2, "api1", "create")
    late = stage.add(3, "api0", "produce", repeat=True)
    stage.fault(late, "wal.commit", 1, ANY, 30)
    return stage


def late_writer_into_a_purged_log() -> Stage:
    """A writer that knows the manifest stands still, while another is first, and the log is deleted and purged. Its slot is
    behind all that was published.
    """
    stage = Stage()
    stage.add(0, "api1", "create")
    stage.add(0.5, "api1", "append")
    stage.add(1, "api1", "append")
    stage.add(2, "sealer1", "seal")
    stage.add(30, "sealer1", "trim")
    stage.add(31, "api0", "read", count=0)
    stage.add(32, "api0", "head")
    late = stage.add(33, "api0", "append")
    stage.fault(late, "wal.commit", 1, "suspend_before", 60)
    stage.add(34, "api1", "append")
    stage.add(35, "api1", "delete")
    stage.add(70, "sealer1", "purge")
    return stage


def payload_swept_between_tries() -> Stage:
    """A writer that lost its slot stands still before it tries the next one, for longer than sweeps of orphans wait."""
    stage = Stage()
    stage.add(0, "api1", "create")
    stage.add(0.5, "api0", "head")
    stage.add(1, "api1", "append")
    late = stage.add(1.5, "api0", "append", size=_LARGE)
    stage.fault(late, "wal.commit", 1, "suspend_after", 4 * HOUR)
    for sweep in range(4):
        stage.add(3 + sweep * 1.02 * HOUR, "sealer1", "orphans")
    return stage


def late_original() -> Stage:
    """An entry arrives long after it was decided. Soon after, a writer with a young picture from before tries its slot."""
    stage = Stage()
    stage.add(0, "api1", "create")
    late = stage.add(1, "api0", "append")
    stage.fault(late, "wal.commit", 1, "pause_before", 30)
    stage.add(30.5, "api2", "head")
    stage.add(31.5, "api1", "append")
    stage.add(32, "sealer1", "seal")
    stage.add(32.5, "sealer1", "trim")
    stage.add(33.5, "api2", "append")
    return stage


def end_that_the_catalog_forgot() -> Stage:
    """A stream is deleted, and its row restored to before that. The recovery marks the row again, which may fail."""
    stage = Stage()
    stage.add(0, "api1", "create")
    stage.add(2, "api1", "delete")
    rescue = stage.add(4, "operator", "disaster")
    stage.disasters.append(Disaster(rescue, (("catalog", SECOND),)))
    stage.fault(rescue, f"{RECOVERY} catalog.mark_ended", 1, ANY, 30)
    return stage


def buried_create() -> Stage:
    """A create stands still between its payload and its commit, until the payload was swept."""
    stage = Stage()
    late = stage.add(0, "api0", "create", size=_LARGE)
    stage.fault(late, "wal.commit", 1, "suspend_before", 100)
    stage.add(70, "sealer1", "sweep")
    stage.add(75, "sealer1", "sweep")
    return stage


def log_that_can_not_be_sealed() -> Stage:
    """Events of a busy log come one after the other, and each finds that it can't be sealed."""
    stage = Stage()
    stage.add(0, "api1", "create")
    for number in range(2):
        stage.add(0.2 + number * 0.2, "api1", "append", count=0.99)
    for number in range(8):
        stage.add(1 + number, "api1", "append", count=0.99)
        look = stage.add(1.5 + number, "sealer1", "stream")
        stage.fault(look, "objects.put", 1, "throttle")
    return stage


def generation_that_was_swept() -> Stage:
    """A sealer stands still before it publishes. Meanwhile another publishes its generation, which is replaced and, long
    after that, removed: its number is free again.
    """
    stage = Stage()
    stage.add(0, "api1", "create")
    stage.add(1, "sealer1", "seal")
    stage.add(2, "api1", "append")
    late = stage.add(3, "sealer0", "seal")
    stage.fault(late, "objects.put", 1, "pause_before", 4 * HOUR)
    for turn in range(2):
        stage.add(5 + 2 * turn, "sealer1", "seal")
        stage.add(6 + 2 * turn, "api1", "append")
    stage.add(2.5 * HOUR, "sealer1", "orphans")
    return stage


def key_of_a_dead_write() -> Stage:
    """A write with a key stands still until its slot was trimmed. Its key is as good as new after that."""
    stage = Stage()
    stage.add(0, "api1", "put", name="t0")
    stage.add(0.5, "api0", "view", name="t0")
    late = stage.add(1, "api0", "keyed", name="t0")
    stage.fault(late, "wal.commit", 1, "suspend_before", 60)
    stage.go_on("write", "t0")
    stage.add(62, "api1", "keyed", name="t0")
    return stage


def delete_that_meets_another_topic() -> Stage:
    """A delete of records stands still before its commit. Meanwhile the name gets another topic, whose records have other
    tags.
    """
    stage = Stage()
    stage.add(0, "api1", "put", name="t0")
    stage.add(0.5, "api1", "write", size=0.03, name="t0")
    late = stage.add(1, "api0", "erase", count=0.7, name="t0")
    stage.fault(late, "wal.commit", 1, "pause_before", 10)
    stage.add(2, "api1", "remove", size=0.9, name="t0")
    stage.add(3, "api1", "put", name="t0")
    stage.add(4, "api1", "write", name="t0")
    return stage


def reader_between_two_queues() -> Stage:
    """A reader has read the jobs of a queue, and stands still before it reads who holds them. Meanwhile the name gets a
    new queue, whose only job is done.
    """
    stage = Stage()
    stage.add(0, "api1", "put", name="q0")
    stage.add(0.5, "api1", "write", count=0.99, name="q0")
    late = stage.add(1, "api0", "diff", count=0.1, name="q0")
    stage.fault(late, "catalog.get", 2, "pause_before", 10)
    stage.add(2, "api1", "remove", size=0.9, name="q0")
    stage.add(3, "api1", "put", name="q0")
    stage.add(4, "api1", "write", count=0.1, name="q0")
    stage.add(5, "api1", "claim", name="q0")
    stage.add(6, "api1", "ack", name="q0")
    return stage


def repeat_of_a_lost_write() -> Stage:
    """A write with a key is lost in a disaster, which its row survives: the next write with that key is no repeat."""
    stage = Stage()
    stage.add(0, "api1", "put", name="t0")
    stage.add(0.5, "api1", "keyed", name="t0")
    rescue = stage.add(4, "operator", "disaster")
    stage.disasters.append(Disaster(rescue, (("wal", int(0.4 * SECOND)),)))
    stage.add(5, "api0", "keyed", name="t0")
    return stage


ALL: tuple[Callable[[], Stage], ...] = (
    dead_item_in_the_slot,
    dead_item_removed,
    producer_evicted_by_a_dead_item,
    repeat_into_a_new_log,
    late_writer_into_a_purged_log,
    payload_swept_between_tries,
    late_original,
    buried_create,
    end_that_the_catalog_forgot,
    log_that_can_not_be_sealed,
    generation_that_was_swept,
    key_of_a_dead_write,
    delete_that_meets_another_topic,
    repeat_of_a_lost_write,
    reader_between_two_queues,
)
