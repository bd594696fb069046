"""Short ways to write to topics and to read them, on stores in memory."""

from __future__ import annotations

from typing import Any

from headrace.batch import Batch, Record
from headrace.topics.values import DiffPage, DiffRequest, TopicConfig, WriteRequest, Written
from headrace.topics.verbs import Topics


def write(topics: Topics, name: str, *data: bytes, **fields: Any) -> Written:
    """Appends records; `tag`, `node` and `meta` are for all of them, other fields those of the request."""
    columns = {"key": fields.pop("tag", None), "node": fields.pop("node", None), "meta": fields.pop("meta", None)}
    return topics.append(name, WriteRequest(records=Batch.of(data, **columns), **fields))


def put(topics: Topics, name: str, **config: Any) -> bool:
    """Puts a topic with this configuration; returns whether it was created."""
    return topics.put(name, TopicConfig(**config)).created


def read(topics: Topics, name: str, from_seq: int = 0, **fields: Any) -> DiffPage:
    """Reads a page."""
    return topics.diff(name, DiffRequest(from_seq, **fields))


def seqs(records: list[Record]) -> list[int]:
    """Returns the seqs of records."""
    return [record.offset + 1 for record in records]
