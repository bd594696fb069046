"""The folder's messages: what is left of a pass leads to another one, whatever ends it, and no lane is lost or repeated."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from functions.fold_queue import SLOT_MS, Fold, MemoryFoldQueue, SqsFoldQueue, deduplication_id
from functions.folder.context import assemble
from functions.folder.handler import PASS_S, FolderFunction
from functions.metrics import FolderMetric, Meter
from functions.queue import NotQueued
from functions.wiring import make_logger
from headrace.errors import Damaged, StoreTimeout
from headrace.features import fold
from headrace.features.values import event_name
from headrace.tables.features import TABLE, MemoryFeatures
from tests.support.faults import Faulty
from tests.unit.features.world import NS, World, event, table, tx

LANE = event_name(NS, "Tx")


class Folds:
    """A world with a lane, and the folder's function on its stores."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.world = World(*(nodes or (event(), table())))
        self.queue = Faulty(MemoryFoldQueue())
        self.lines: list[dict[str, Any]] = []
        meter = Meter(FolderMetric, lambda line: self.lines.append(json.loads(line)))
        self.context = assemble(self.world.stores, self.queue, meter)
        self.function = FolderFunction(self.context, make_logger("folder"))
        self.log_id = self.world.api.head(LANE).log_id
        self.rows: MemoryFeatures = self.world.stores.tables[TABLE]  # type: ignore[assignment]

    def receive(self, message: Fold | str | None = None, tries: int = 1, id_: str = "m1") -> list[str]:
        """Has the function handle a message; returns those that SQS must repeat."""
        body = message or Fold(self.log_id, LANE)
        record = {
            "messageId": id_,
            "eventSource": "aws:sqs",
            "body": body if isinstance(body, str) else msgspec.json.encode(body).decode(),
            "attributes": {"ApproximateReceiveCount": str(tries)},
        }
        answer = self.function.handle({"Records": [record]}, None)
        return [one["itemIdentifier"] for one in answer["batchItemFailures"]]

    @property
    def folded(self) -> int:
        mark = self.rows.mark(self.log_id)
        return mark.folded if mark is not None else 0

    def counted(self, metric: FolderMetric) -> int:
        values = [line.get(metric.name, []) for line in self.lines]
        return sum(sum(value) if isinstance(value, list) else value for value in values)


@pytest.fixture
def folds() -> Folds:
    """Returns a lane with three events that are in no row."""
    folds = Folds()
    for user in ("a", "b", "a"):
        folds.world.push(tx(user))
    return folds


def test_a_message_folds_its_lane(folds: Folds) -> None:
    folds.world.clock.advance(7)
    assert folds.receive() == []
    assert folds.folded == 3
    assert {key.entity: row.as_of for key, row in folds.rows.kept.items()} == {"a": 3, "b": 3}
    assert folds.queue.take() == []
    assert folds.counted(FolderMetric.EventsFolded) == 3
    assert folds.counted(FolderMetric.FoldLagMs) == 7_000
    assert folds.counted(FolderMetric.Passes) == 1


def test_a_lane_that_has_ended_or_never_was_is_done(folds: Folds) -> None:
    assert folds.receive(Fold("0", event_name(NS, "Absent"))) == []
    folds.world.api.reset(NS)
    assert folds.receive() == []
    assert folds.queue.take() == []
    assert folds.counted(FolderMetric.PassFailures) == 0


def test_what_is_left_when_the_time_is_over_is_asked_for_again(folds: Folds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "_EVENTS", 1)
    slices = folds.context.folder.log.records

    def slow(*args: Any, **kwargs: Any) -> Any:
        folds.world.clock.advance(PASS_S * 0.6)
        return slices(*args, **kwargs)

    monkeypatch.setattr(folds.context.folder.log, "records", slow)
    assert folds.receive(id_="m1") == []
    assert folds.folded == 2, "the second slice begins in time, the third would not"
    (again,) = folds.queue.take()
    assert again == Fold(folds.log_id, LANE, again="m1")
    assert folds.counted(FolderMetric.PassesOvertaken) == 0
    assert folds.receive(again, id_="m2") == []
    assert folds.folded == 3
    assert folds.queue.take() == []


def test_a_pass_that_another_folder_overtakes_is_repeated(folds: Folds, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(folds.rows, "put_mark", lambda _: None)  # as if another folder were always faster
        assert folds.receive() == []
    assert folds.counted(FolderMetric.PassesOvertaken) == 1
    (again,) = folds.queue.take()
    assert folds.receive(again) == []
    assert folds.folded == 3
    assert folds.queue.take() == []


def test_a_store_that_does_not_answer_is_not_what_folders_die_of(
    folds: Folds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQS counts how often it has delivered a message, and above two a pass looks for the generation that kills. So a
    failure that is handled leads to a new message.
    """

    def unanswered(*_: Any) -> Any:
        raise StoreTimeout("PutItem: no answer")

    message = Fold(folds.log_id, LANE)
    with monkeypatch.context() as patch:
        patch.setattr(folds.rows, "put", unanswered)
        for number in range(6):
            assert folds.receive(message, id_=f"m{number}") == []
            (message,) = folds.queue.take()
            assert message.again == f"m{number}"
    assert folds.receive(message) == []
    assert folds.folded == 3
    mark = folds.rows.mark(folds.log_id)
    assert mark is not None
    assert not mark.stopped
    assert folds.counted(FolderMetric.PassFailures) == 6
    assert folds.counted(FolderMetric.PoisonedLogs) == 0


def test_a_failure_that_no_repeat_heals_is_told_and_not_repeated(
    folds: Folds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: Any) -> Any:
        raise Damaged("mark does not parse")

    with monkeypatch.context() as patch:
        patch.setattr(folds.rows, "mark", damaged)
        assert folds.receive() == []
    assert folds.queue.take() == []
    assert folds.counted(FolderMetric.PoisonedLogs) == 1


def test_sqs_repeats_a_message_whose_successor_could_not_be_sent(
    folds: Folds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "_EVENTS", 1)
    monkeypatch.setattr("functions.folder.handler.PASS_S", 0.0)
    folds.queue.fail("send", NotQueued)
    assert folds.receive(id_="m1") == ["m1"]
    assert folds.folded == 1


def test_a_message_that_is_not_understood_comes_again(folds: Folds) -> None:
    assert folds.receive("{") == ["m1"]
    assert folds.receive(json.dumps({"log_id": folds.log_id, "name": LANE, "version": 2})) == ["m1"]
    assert folds.folded == 0
    with pytest.raises(ValueError, match="no known kind"):
        folds.function.handle({"verb": "sweep"}, None)


def test_a_generation_that_folders_die_of_stops_alone(folds: Folds, monkeypatch: pytest.MonkeyPatch) -> None:
    folds.world.register(event(), table(), table("Bad"))
    folds.world.push()

    class Died(BaseException):
        """The end of a process."""

    write = folds.context.folder.write

    def kill(changed: Any) -> None:
        if any(row.key.generation.startswith("Bad.") for row, _, _ in changed):
            raise Died
        write(changed)

    monkeypatch.setattr(folds.context.folder, "write", kill)
    for tries in range(1, 5):
        try:
            assert folds.receive(tries=tries) == []
            break
        except Died:
            pass
    assert tries == 4, "two together, one alone, and then the other generations"
    mark = folds.rows.mark(folds.log_id)
    assert mark is not None
    assert [stop.generation.split(".")[0] for stop in mark.stopped] == ["Bad"]
    assert folds.folded == 4
    assert folds.counted(FolderMetric.TablesStopped) == 1


def test_rows_that_may_go_are_removed_however_many_passes_that_takes(
    folds: Folds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.tables.features.PURGED_AT_ONCE", 1)
    assert folds.receive() == []
    folds.world.register(event(), table(c="count", m=("max", {"field": "amount"})), force=True)
    assert folds.receive() == []
    assert folds.queue.take() == [], "its time has not come"
    folds.world.clock.advance(fold.DROP_MS / 1000)
    message, passes = Fold(folds.log_id, LANE), 0
    while True:
        assert folds.receive(message, id_=f"p{passes}") == []
        passes += 1
        left = folds.queue.take()
        if not left:
            break
        (message,) = left
        assert passes < 9, "each removes a row"
    assert passes > 1
    mark = folds.rows.mark(folds.log_id)
    assert mark is not None
    assert {key.generation for key in folds.rows.kept} <= set(mark.generations)


# The queue.


def test_equal_messages_of_two_seconds_are_one() -> None:
    queue, message = MemoryFoldQueue(), Fold("l", "n", "lane.1")
    for now_ms in (0, SLOT_MS - 1, SLOT_MS):
        queue.send([message], now_ms)
    assert queue.take() == [message, message]
    queue.send([message], SLOT_MS)
    assert queue.take() == [], "also if the other was received"
    queue.send([Fold("l", "n", again="m1")] * 2, 0)
    queue.send([Fold("l", "n", again="m2")], 0)
    assert [one.again for one in queue.take()] == ["m1", "m2"]


def test_sqs_is_told_the_lane_as_group() -> None:
    calls: list[Any] = []

    class Client:
        def send_message_batch(self, **asked: Any) -> Any:
            calls.append(asked)
            return {"Failed": [{"Id": "0"}]} if len(calls) == 2 else {}

    messages = [Fold(f"l{number}", "n") for number in range(12)]
    with pytest.raises(NotQueued, match="count=1"):
        SqsFoldQueue(Client(), "url").send(messages, 5_000)
    assert [len(call["Entries"]) for call in calls] == [10, 2]
    assert calls[0]["Entries"][3] == {
        "Id": "3",
        "MessageBody": '{"log_id":"l3","name":"n"}',
        "MessageGroupId": "l3",
        "MessageDeduplicationId": deduplication_id(messages[3], 5_000),
    }
