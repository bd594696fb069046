"""The records of requests and answers. The bytes of `data` and `meta` are cut out of the request's body and stored as
they came, and put into answers as they are stored: numbers keep their digits, objects their order and white space.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import orjson

from functions.api.door import requests
from functions.api.door.answers import ANSWER_BYTES, grown
from functions.api.topics.config import ConfigBody
from headrace.batch import Batch
from headrace.errors import InvalidRequest
from headrace.json import jsontext
from headrace.queues.values import Job
from headrace.topics.diff import shown
from headrace.topics.errors import BatchTooLarge, RecordTooLarge
from headrace.topics.values import (
    MAX_KEY_CHARACTERS,
    MAX_META_BYTES,
    MAX_META_KEYS,
    MAX_NODE_BYTES,
    MAX_RECORD_BYTES,
    MAX_RECORDS,
    MAX_TAG_BYTES,
    WriteRequest,
)

_REST_BYTES = 4096  # what an answer has besides its records, at most
_ABSENT = (b"", b"null")
_KEYLESS_BYTES = MAX_META_KEYS * 4  # an object of more keys takes more bytes than these


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


class RecordBody(msgspec.Struct, frozen=True):
    """A record in a request (§ 2). `data` and `meta` are JSON texts."""

    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: msgspec.Raw = msgspec.Raw(b"")


_records = msgspec.json.Decoder(list[RecordBody])
_LEAST_BYTES = len(b'{"data":1},')


class WriteBody(msgspec.Struct, frozen=True):
    """The body of a write (§ 2)."""

    records: msgspec.Raw  # of a name that is repeated, the last value counts: no other is decoded
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: ConfigBody | None = None
    disable_backpressure: bool = False


def request_of(body: WriteBody, header_key: str | None) -> WriteRequest:
    """Returns the request to append the records of a body.

    Args:
        header_key: the idempotency key of the header, which the body's overrides.

    Raises:
        BatchTooLarge, RecordTooLarge: there are too many records, or one is too large.
        InvalidRequest: another limit of § 2 is exceeded, or there are no records.
    """
    key = header_key if body.idempotency_key is None else body.idempotency_key
    if key is not None and not 0 < len(key) <= MAX_KEY_CHARACTERS:
        raise InvalidRequest(f"the idempotency key must have 1 to {MAX_KEY_CHARACTERS} characters")
    records = _cut_out(body.records)
    if not records:
        raise InvalidRequest("records is empty")
    check_text("node", body.node, MAX_NODE_BYTES)
    metas = [_meta(number, record) for number, record in enumerate(records)]
    batch = Batch.of(
        [record.data for record in records],
        key=[record.tag for record in records],
        node=[body.node if record.node is None else record.node for record in records],
        meta=metas if any(metas) else None,
    )
    given = {} if body.config is None else {"config": body.config.config()}
    return WriteRequest(records=batch, key=key, create=body.create, **given)


def _cut_out(text: msgspec.Raw) -> list[RecordBody]:
    """Returns the records in the JSON text of an array. They are counted first: they cost far more memory than the text.

    Raises:
        BatchTooLarge: there are too many.
        InvalidRequest: it is no array, or not of records.
    """
    # simdjson only counts: what it builds costs a second a MiB, and it builds arrays of 2^24 elements beyond their end.
    data = bytes(text)
    try:
        if len(data) > MAX_RECORDS * _LEAST_BYTES and data.startswith(b"["):
            count = len(requests.parsed(data))
            if count > MAX_RECORDS:
                raise BatchTooLarge(f"too many records: limit={MAX_RECORDS} received={count}")
        return _records.decode(data)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise InvalidRequest(f"the body is not valid: {str(exc).replace('`$', '`$.records')}") from exc


def _meta(number: int, record: RecordBody) -> bytes | None:
    """Checks a record, and returns its meta; None if it has none."""
    check_text("tag", record.tag, MAX_TAG_BYTES)
    check_text("node", record.node, MAX_NODE_BYTES)
    meta = bytes(record.meta)
    size = len(record.data) + len(meta)
    if size > MAX_RECORD_BYTES:
        raise RecordTooLarge(f"a record is too large: index={number} limit={MAX_RECORD_BYTES} received={size}")
    # Searches, index jobs and the burial of a job parse what was stored: they must be able to.
    if size > 2 * jsontext.MAX_DEPTH:
        jsontext.check_depth(record.data)
        jsontext.check_depth(record.meta)
    if meta in _ABSENT:
        return None
    if not meta.startswith(b"{"):
        raise InvalidRequest(f"meta is not an object: index={number}")
    if len(meta) > MAX_META_BYTES:
        raise InvalidRequest(f"meta is too large: index={number} limit={MAX_META_BYTES} received={len(meta)}")
    if len(meta) > _KEYLESS_BYTES and len(_members.decode(meta)) > MAX_META_KEYS:
        raise InvalidRequest(f"meta has too many keys: index={number} limit={MAX_META_KEYS}")
    return meta


def check_text(what: str, text: str | None, limit: int) -> None:
    """Raises InvalidRequest if a text has more than `limit` bytes of UTF-8."""
    if text is not None and len(text) * 4 > limit and len(text.encode()) > limit:
        raise InvalidRequest(f"{what} is too long: limit={limit} received={len(text.encode())}")


def shown_job(job: Job) -> bytes:
    """Returns a leased job as answers show it (§ 10.2)."""
    lease = {"lease_id": job.lease_id, "deadline": job.deadline_ms, "deliveries": job.deliveries}
    return shown(job.record, tag=True, meta=True, node=False, lease=b"," + orjson.dumps(lease)[1:-1])


def array(name: str, items: Iterable[bytes]) -> bytes:
    """Returns a member that is an array of JSON texts, with a comma before it."""
    return b',"%s":[%s]' % (name.encode(), b",".join(items))


def fitting(items: Sequence[bytes]) -> int:
    """Returns how many of the first items fit into a buffered answer, at least one."""
    room = ANSWER_BYTES - _REST_BYTES
    for number, item in enumerate(items):
        room -= grown(item, "application/json")
        if room < 0:
            return max(1, number)
    return len(items)
