"""Sends batches under producer ids: each is applied once, and a rerun of the same input appends only what is missing.

A rerun asks the server what it has; nothing is kept on this machine. The server knows of each producer its epoch and how
many requests it accepted, so the epochs say what the requests held (docs/decisions.md):

    ID         the batches that were ended by a limit. Its epoch has the limits, and a check of the first batch
    ID.end     the last batch of the input. Its epoch has how much the whole input holds, and a check of that
    ID.COUNT   as ID, for what was added to the input behind its first COUNT records
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import chain

from cli.client import Client
from cli.elements import PAUSE
from cli.errors import BadInput, CliError, Refused
from cli.options import Target
from cli.sources import Batch, Chunks
from cli.tables import counted

LAST_NUMBER = 2**53 - 1
"""The highest number of a request. A request with it is refused, and the refusal says which number is next."""
_CHECK_BITS = 13
_BYTES_BITS = 22
"""Enough for the largest --batch-bytes less one."""


@dataclass(frozen=True)
class Limits:
    """How records are grouped into requests: at most so many records, and at most so many bytes."""

    records: int
    bytes: int


class Tally:
    """An iterator over an input's records, or chunks of bytes, that counts and checks what went through it.

    Attributes:
        noun: what is counted: `record` or `byte`.
        count: how much went through.
    """

    def __init__(self, items: Chunks, *, is_json: bool) -> None:
        self.noun = "record" if is_json else "byte"
        self.count = 0
        self._items = items
        self._is_json = is_json
        self._hash = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes | None]:
        for item in self._items:
            if item is not PAUSE:
                self._note(item)
            yield item

    def _note(self, item: bytes) -> None:
        if self._is_json:
            self._hash.update(b"%d:" % len(item))  # so that moving a byte to the next record is seen
        self._hash.update(item)
        self.count += 1 if self._is_json else len(item)

    @property
    def check(self) -> int:
        """A number of a few bits that is different, but for chance, if anything else went through."""
        return _check(self._hash.digest())

    def peek(self) -> bytes:
        """Returns the next item, which is not taken; empty at the end of the input."""
        first = next(self._items, PAUSE) or b""
        self._items = chain([first] if first else [], self._items)
        return first

    def skip(self, count: int) -> bool:
        """Takes so many records or bytes. Returns False if the input has fewer."""
        while self.count < count:
            item = next(self._items, PAUSE)
            if item is PAUSE:
                return False
            left = count - self.count
            if not self._is_json and len(item) > left:
                self._items = chain([item[left:]], self._items)
                item = item[:left]
            self._note(item)
        return True


def _check(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big") >> (64 - _CHECK_BITS)


@dataclass
class Totals:
    """The totals of a run.

    Attributes:
        requests, records, bytes: what this run sent.
        duplicates: the requests among them that the server already had.
        skipped: the records (of a stream of bytes, the bytes) that were not sent, since an earlier run had appended them.
        under_way: the batch whose outcome is not known, if the run was interrupted while it was sent.
    """

    requests: int = 0
    records: int = 0
    bytes: int = 0
    duplicates: int = 0
    skipped: int = 0
    under_way: Batch | None = None
    next_offset: str = ""


@dataclass
class Producer:
    """A sender of batches, in order, one at a time. Each carries the next producer number, so that sending one twice
    changes nothing.
    """

    client: Client
    target: Target
    content_type: str
    id: str
    epoch: int = 0
    stream_key: str | None = None
    timestamp: str | None = None
    stream_seq: str | None = None
    number: int = 0
    totals: Totals = field(default_factory=Totals)

    def append(self, batch: Batch) -> None:
        """Appends one batch. Raises `Refused` if the server answers with an error, `Unreachable` if it does not answer."""
        self.send(batch, self.id, self.epoch, self.number)

    def append_all(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Appends batches, and yields each when the server has it."""
        for batch in batches:
            self.append(batch)
            yield batch

    def send(self, batch: Batch, producer_id: str, epoch: int, number: int) -> None:
        """Sends one batch as request `number` of a producer."""
        headers = {**producer_headers(producer_id, epoch, number), **self.hint_headers()}
        self.totals.under_way = batch
        try:
            answer = self.client.send(
                "POST", self.target.url, what=self.what, headers={"content-type": self.content_type, **headers},
                content=batch.body,
            )  # fmt: skip
        except Refused as refused:
            if refused.status < 500 and refused.status != HTTPStatus.REQUEST_TIMEOUT:
                self.totals.under_way = None  # nothing of it was written
            raise
        self.totals.under_way = None
        self.number += 1
        self.totals.requests += 1
        self.totals.records += batch.records
        self.totals.bytes += len(batch.body)
        self.totals.next_offset = answer.headers.get("stream-next-offset", self.totals.next_offset)
        if answer.status_code == 204:
            self.totals.duplicates += 1

    def close(self) -> None:
        """Closes the stream; a closed stream is no error."""
        answer = self.client.send(
            "POST",
            self.target.url,
            what=f"close {self.target.name}",
            headers={"stream-closed": "true"},
            content=b"",
        )
        self.totals.next_offset = answer.headers.get("stream-next-offset", self.totals.next_offset)

    @property
    def what(self) -> str:
        """What is done, for messages."""
        return f"append to {self.target.name}"

    def hint_headers(self) -> dict[str, str]:
        """Returns the headers with hints for the server. Stream-Seq must grow with every request: later requests get a
        suffix, since a text sorts after its own prefix.
        """
        headers = {}
        if self.stream_key is not None:
            headers["stream-key"] = self.stream_key
        if self.timestamp is not None:
            headers["stream-timestamp"] = self.timestamp
        if self.stream_seq is not None:
            headers["stream-seq"] = self.stream_seq if self.number == 0 else f"{self.stream_seq}.{self.number:012d}"
        return headers


@dataclass
class Rerunner:
    """A sender of an input that may have been sent before, in part or whole, by this command.

    Raises, from `append_all`:
        BadInput: what was appended before is not the beginning of this input, or was sent with other limits.
        The errors of `Producer.append`.
    """

    producer: Producer
    limits: Limits
    tally: Tally

    def append_all(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Appends the batches that the server does not have, and yields each when it has it.

        Args:
            batches: groups `tally`, which has not been read yet.
        """
        producer, tally, end = self.producer, self.tally, f"{self.producer.id}.end"
        first = tally.peek()
        if not first:
            return
        sample = b"[" + first + b"]" if tally.noun == "record" else first[:1]
        self._skip_whole(self._epoch(end, sample))
        if tally.count:
            producer.id += f".{tally.count}"
        accepted = 0
        for batch in batches:
            if producer.number == 0:
                accepted = self._start(batch, sample)
            if producer.number < accepted:
                if batch.is_last:
                    raise self._changed(counted(accepted, "request") + " of it", "it ends before that now")
                producer.totals.skipped += batch.records or len(batch.body)
                producer.number += 1
                continue
            if batch.is_last:
                producer.send(batch, end, tally.count << _CHECK_BITS | tally.check, 0)
            else:
                producer.append(batch)
            yield batch

    def _start(self, first: Batch, sample: bytes) -> int:
        """Sets the producer's epoch. Returns how many of the batches from `first` on the server has."""
        producer = self.producer
        check = _check(hashlib.sha256(first.body).digest())
        producer.epoch = (self.limits.records << _BYTES_BITS | self.limits.bytes - 1) << _CHECK_BITS | check
        known = self._epoch(producer.id, sample)
        if known is None:
            return 0
        self._check_epoch(known)
        return self._next_number(sample)

    def _skip_whole(self, known: int | None) -> None:
        """Skips what an earlier run appended when it reached the end of the input."""
        if known is None:
            return
        count, check = known >> _CHECK_BITS, known & (1 << _CHECK_BITS) - 1
        what = counted(count, self.tally.noun)
        if not self.tally.skip(count):
            raise self._changed(what, f"now it has {counted(self.tally.count, self.tally.noun)}")
        if self.tally.check != check:
            raise self._changed(what, "these are different now")
        self.producer.totals.skipped += count

    def _check_epoch(self, known: int) -> None:
        """Raises BadInput unless the earlier run, which had the epoch `known`, had these limits and this first batch."""
        if known == self.producer.epoch:
            return
        limits = known >> _CHECK_BITS
        before = Limits(limits >> _BYTES_BITS, (limits & (1 << _BYTES_BITS) - 1) + 1)
        if not before.records:
            raise BadInput(
                f"{self.producer.what}: the producer id {self.producer.id} was not used by this command",
                f"another --producer-id, or --producer-epoch {known} to go on where it stopped",
            )
        if before != self.limits:
            by_records = f"--batch-records {before.records} " if self.tally.noun == "record" else ""
            raise BadInput(
                f"{self.producer.what}: an earlier run that was cut off sent part of this input in other batches",
                f"go on with the same: {by_records}--batch-bytes {before.bytes}",
            )
        raise self._changed("part of it", "its beginning is different now")

    def _changed(self, what: str, how: str) -> CliError:
        return BadInput(
            f"{self.producer.what}: an earlier run appended {what}; {how}, so the input has changed",
            "--producer-id NAME appends all of it again, under a name for this data",
        )

    def _epoch(self, producer_id: str, sample: bytes) -> int | None:
        """Returns the epoch of a producer at the server; None if the server does not know it."""
        answer = self._ask(producer_id, 0, sample)
        if "producer-epoch" in answer:
            return int(answer["producer-epoch"])
        return 0 if int(answer.get("producer-expected-seq", 0)) else None

    def _next_number(self, sample: bytes) -> int:
        """Returns the number that the server expects next of the producer; 0 if the stream is closed, which hides it: then
        all batches are sent, and the server knows them.
        """
        return int(self._ask(self.producer.id, self.producer.epoch, sample).get("producer-expected-seq", 0))

    def _ask(self, producer_id: str, epoch: int, sample: bytes) -> dict[str, str]:
        """Sends a request that the server refuses, whatever it knows of the producer, and returns the answer's headers."""
        producer = self.producer
        headers = {"content-type": producer.content_type, **producer_headers(producer_id, epoch, LAST_NUMBER)}
        answer = producer.client.send(
            "POST", producer.target.url, what=producer.what, headers=headers, content=sample, expect=(403, 409)
        )
        found = dict(answer.headers)
        if answer.status_code < 400:
            what = f"{producer.what}: this server takes requests of a producer in any order, so none can be repeated safely"
            raise CliError(what, "look at the end of the stream; with --producer-epoch 0 nothing is compared")
        if not {"producer-epoch", "producer-expected-seq", "stream-closed"} & found.keys():
            raise producer.client.refusal(producer.what, answer)
        return found


def producer_headers(producer_id: str, epoch: int, number: int) -> dict[str, str]:
    return {"producer-id": producer_id, "producer-epoch": str(epoch), "producer-seq": str(number)}
