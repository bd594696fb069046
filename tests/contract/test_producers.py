"""What every `Producers` adapter does: one suite, on memory and on DynamoDB."""

from __future__ import annotations

import pytest

from headrace.tables import producers as table
from headrace.tables.items import Guard
from headrace.tables.producers import Key, PutKey, PutProducer
from headrace.wal import Committed, GuardRefused, Outcome
from headrace.wal.state import Producer
from tests.contract.conftest import Ports
from tests.support.builders import first_entry, log_id


def put(ports: Ports, log: str, *producers: Producer) -> None:
    ports.wal.commit(first_entry(log_id()), [PutProducer(log, producer) for producer in producers])


def test_a_producer_comes_back_as_it_was(ports: Ports) -> None:
    log = log_id()
    producer = Producer("ü,\U0001f600 " * 20, 2**53 - 1, 2**53 - 1)
    put(ports, log, producer, Producer("p", 0, 0))
    assert ports.producers.get(log, producer.id) == producer
    assert ports.producers.get(log, "p") == Producer("p", 0, 0)
    assert ports.producers.get(log, "q") is None
    assert ports.producers.get(log_id(), "p") is None


def test_a_purge_drops_all_of_one_log(ports: Ports) -> None:
    log, other = log_id(), log_id()
    put(ports, log, *(Producer(f"p{n}", 0, n) for n in range(60)))
    put(ports, other, Producer("p0", 0, 0))
    assert ports.producers.purge(log)
    assert ports.producers.purge(log)
    assert [ports.producers.get(log, f"p{n}") for n in range(60)] == [None] * 60
    assert ports.producers.get(other, "p0") == Producer("p0", 0, 0)


def test_a_purge_of_many_is_done_in_parts(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "PURGED_AT_ONCE", 40)
    log = log_id()
    put(ports, log, *(Producer(f"p{n:02}", 0, n) for n in range(60)))
    assert not ports.producers.purge(log)
    assert sum(ports.producers.get(log, f"p{n:02}") is not None for n in range(60)) == 20
    assert ports.producers.purge(log)


def give(ports: Ports, log: str, key: Key, now_ms: int, *others: Guard) -> Outcome:
    """Commits an entry with a key's row, to a log of its own each time."""
    return ports.wal.commit(first_entry(log_id()), [PutKey(log, "digest", key, now_ms), *others])


def test_a_key_belongs_to_one_write_until_its_time_is_over(ports: Ports) -> None:
    log, first = log_id(), Key(3, 5, until_ms=2_000, request_id="r1")
    assert ports.producers.key(log, "digest") is None
    assert give(ports, log, first, 1_000) == Committed()
    assert ports.producers.key(log, "digest") == first
    later = Key(5, 6, until_ms=3_000, request_id="r2")
    assert give(ports, log, later, 1_999) == GuardRefused(0, first)
    assert give(ports, log_id(), later, 1_999) == Committed(), "another log has other keys"
    assert give(ports, log, later, 2_000) == Committed()
    assert ports.producers.key(log, "digest") == later
    assert ports.producers.purge(log)
    assert ports.producers.key(log, "digest") is None


def test_a_refusal_tells_every_guard_that_refused(ports: Ports) -> None:
    log, held = log_id(), Key(0, 1, until_ms=9, request_id="r1")
    free, taken = PutKey(log, "free", held, 1), PutKey(log, "taken", held, 1)
    assert give(ports, log, held, 1, taken) == Committed()
    entry = first_entry(log_id())
    digest = PutKey(log, "digest", held, 1)
    outcome = ports.wal.commit(entry, [free, digest, PutProducer(log, Producer("p", 0, 0)), taken])
    assert outcome == GuardRefused(1, held, ((3, held),))
    assert isinstance(outcome, GuardRefused)
    assert outcome.refused == ((1, held), (3, held))
    assert ports.producers.key(log, "free") is None
    assert ports.wal.newest(entry.log_id) is None
