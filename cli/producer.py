"""Appends that are applied once, however often they are sent: epoch and sequence numbers of one producer."""

from __future__ import annotations

from dataclasses import dataclass

from cli.batches import Batch
from cli.client import Client
from cli.target import Target


@dataclass
class Totals:
    """What a run has done. `duplicates` are requests that the server already had from an earlier run."""

    requests: int = 0
    records: int = 0
    bytes: int = 0
    duplicates: int = 0
    next_offset: str = ""


@dataclass
class Producer:
    """Sends batches in order, one at a time, each with the next number, so a repeated send changes nothing."""

    client: Client
    target: Target
    content_type: str
    producer_id: str
    epoch: int = 0
    stream_key: str | None = None
    timestamp: str | None = None
    stream_seq: str | None = None

    def __post_init__(self) -> None:
        self.totals = Totals()

    def append(self, batch: Batch) -> None:
        """Appends one batch. Raises `Refused` or `Unreachable`."""
        headers = {"content-type": self.content_type, **self.producer_headers(), **self.hint_headers()}
        answer = self.client.send(
            "POST", self.target.url, what=f"append to {self.target.name}", headers=headers, content=batch.body
        )
        self.totals.requests += 1
        self.totals.records += batch.records
        self.totals.bytes += len(batch.body)
        self.totals.next_offset = answer.headers.get("stream-next-offset", self.totals.next_offset)
        if answer.status_code == 204:
            self.totals.duplicates += 1

    def close(self) -> None:
        """Closes the stream; closing a closed one is no error."""
        answer = self.client.send(
            "POST",
            self.target.url,
            what=f"close {self.target.name}",
            headers={"stream-closed": "true"},
            content=b"",
        )
        self.totals.next_offset = answer.headers.get("stream-next-offset", self.totals.next_offset)

    def producer_headers(self) -> dict[str, str]:
        return {
            "producer-id": self.producer_id,
            "producer-epoch": str(self.epoch),
            "producer-seq": str(self.totals.requests),
        }

    def hint_headers(self) -> dict[str, str]:
        """Stream-Seq must grow with every request: later ones get a suffix, as text sorts after its beginning."""
        headers = {}
        if self.stream_key is not None:
            headers["stream-key"] = self.stream_key
        if self.timestamp is not None:
            headers["stream-timestamp"] = self.timestamp
        if self.stream_seq is not None:
            number = self.totals.requests
            headers["stream-seq"] = self.stream_seq if number == 0 else f"{self.stream_seq}.{number:012d}"
        return headers
