"""What every `Watermarks` adapter does: one suite, on memory and on DynamoDB."""

from __future__ import annotations

from headrace.tables.watermarks import SEALER_NOTE, Usage, Watermark
from tests.contract.conftest import Ports
from tests.support.builders import log_id


def test_without_a_row_everything_is_zero(ports: Ports) -> None:
    assert ports.watermarks.get(log_id()) == Watermark(0, 0, 0, 0)


def test_the_published_part_is_raised_by_a_newer_generation_only(ports: Ports) -> None:
    log = log_id()
    assert ports.watermarks.publish(log, 2, 10**28, 50, 600)
    assert not ports.watermarks.publish(log, 2, 1, 1, 1)
    assert not ports.watermarks.publish(log, 1, 2, 2, 2)
    assert ports.watermarks.get(log) == Watermark(2, 10**28, 50, 600)
    assert ports.watermarks.publish(log, 3, 10**28 + 1, 51, 601)
    assert ports.watermarks.get(log) == Watermark(3, 10**28 + 1, 51, 601)


def test_the_published_end_never_falls(ports: Ports) -> None:
    """A purge raises it over everything; a sealer that slept meanwhile publishes one generation more, of less."""
    log = log_id()
    assert ports.watermarks.publish(log, 1, 10**28, 50, 600)
    assert not ports.watermarks.publish(log, 2, 10**28 - 1, 49, 590)
    assert ports.watermarks.get(log) == Watermark(1, 10**28, 50, 600)
    assert ports.watermarks.publish(log, 2, 10**28, 50, 600)


def test_a_touch_never_falls(ports: Ports) -> None:
    log = log_id()
    for now_ms, expected in ((5, 5), (4, 5), (5, 5), (9, 9)):
        ports.watermarks.touch(log, now_ms)
        assert ports.watermarks.usage(log) == Usage(expected, {})


def test_counters_add_up_and_leave_the_last_read_alone(ports: Ports) -> None:
    log, other = log_id(), log_id()
    assert ports.watermarks.usage(log) == Usage(0, {})
    ports.watermarks.count(log, {"segment.get": 2, "manifest.put": 1})
    ports.watermarks.touch(log, 5)
    ports.watermarks.count(log, {"segment.get": 40})
    ports.watermarks.count(other, {"segment.get": 7})
    ports.watermarks.count(log, {})
    assert ports.watermarks.usage(log) == Usage(5, {"segment.get": 42, "manifest.put": 1})


def test_a_deleted_row_is_gone_and_alone(ports: Ports) -> None:
    """Usage is a row of its own, so that its writers do not collide with commits that check the published end."""
    log, other = log_id(), log_id()
    for one in (log, other):
        ports.watermarks.publish(one, 1, 2, 3, 4)
    ports.watermarks.touch(log, 5)
    ports.watermarks.count(log, {"wal_payload.put": 1})
    assert ports.watermarks.get(log) == Watermark(1, 2, 3, 4)
    ports.watermarks.delete(log)
    ports.watermarks.delete(log)
    assert ports.watermarks.get(log) == Watermark()
    assert ports.watermarks.get(other) == Watermark(1, 2, 3, 4)
    assert ports.watermarks.usage(log) == Usage(5, {"wal_payload.put": 1})


def test_a_note_is_replaced_only_by_who_read_it(ports: Ports) -> None:
    log = log_id()
    assert ports.watermarks.note(log) is None
    assert not ports.watermarks.set_note(log, b"b", b"a")
    assert ports.watermarks.set_note(log, b"a", None)
    assert not ports.watermarks.set_note(log, b"c", None)
    assert ports.watermarks.set_note(log, b"b", b"a")
    assert ports.watermarks.note(log) == b"b"
    assert ports.watermarks.get(log) == Watermark()
    ports.watermarks.set_note(log, b"other", None, SEALER_NOTE)
    assert not ports.watermarks.drop_note(log, replaces=b"a")
    assert ports.watermarks.note(log) == b"b"
    assert ports.watermarks.drop_note(log, replaces=b"b")
    assert not ports.watermarks.drop_note(log, replaces=b"b")
    assert ports.watermarks.drop_note(log)
    assert (ports.watermarks.note(log), ports.watermarks.note(log, SEALER_NOTE)) == (None, b"other")
    assert ports.watermarks.note(log) is None


def test_the_index_generation_never_falls_and_needs_a_published_log(ports: Ports) -> None:
    log = log_id()
    ports.watermarks.publish_index(log, 3)
    assert ports.watermarks.get(log) == Watermark()
    ports.watermarks.publish(log, 1, 2, 3, 4)
    for generation, expected in ((3, 3), (2, 3), (4, 4)):
        ports.watermarks.publish_index(log, generation)
        assert ports.watermarks.get(log) == Watermark(1, 2, 3, 4, expected)
    assert ports.watermarks.publish(log, 2, 3, 4, 5)
    assert ports.watermarks.get(log) == Watermark(2, 3, 4, 5, 4)
