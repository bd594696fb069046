"""What every `Producers` adapter does: one suite, on memory and on DynamoDB."""

from __future__ import annotations

import pytest

from headrace.tables import producers as table
from headrace.tables.producers import PutProducer
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
