"""Checks and normalizes what an append writes: by the profile, against the schema, with routing keys.

An append is prepared under the definition in the state on which it is decided. If the definition changes meanwhile, the
slot is taken and the append is decided again.
"""

from __future__ import annotations

from headrace.batch import MAX_KEY_BYTES, Batch
from headrace.definition import Definition
from headrace.errors import InvalidRequest
from headrace.json import jsontext, registry
from headrace.limits import MAX_APPEND_BYTES
from headrace.log.requests import JSON
from headrace.streams import profiles


def prepare(definition: Definition, content_type: str | None, records: Batch, now_ms: int) -> Batch:
    """Returns the records as they will be stored. A document that the profile does not change keeps its bytes.

    Args:
        definition: the current definition.
        content_type: content type of the request.
        records: the records of the request.
        now_ms: the server's clock, for profiles that fill in a time.

    Raises:
        InvalidRequest: a record is invalid; then none is appended.
    """
    routing = definition.registry.routing_key
    validator, profile = definition.validator, profiles.of(definition)
    if validator is None and routing is None and not profile.reads_records:
        return records
    if content_type != JSON:
        raise InvalidRequest("stream requires JSON")
    if routing is not None and records.key is not None:
        raise InvalidRequest("Stream-Key is not allowed: the schema says where the routing key is")
    stored_data: list[bytes] = []
    keys: list[str | None] = []
    for number, (data, key) in enumerate(zip(records.slices(), records.keys, strict=True)):
        try:
            document = jsontext.loads(data)
            if profile.reads_records:
                stored, derived = profile.normalize(document, now_ms)
                if stored is not document:
                    document, data = stored, jsontext.dumps(stored)
                key = key if key is not None else derived
            if validator is not None:
                validator.check(document)
            if routing is not None:
                key = registry.routing_key_of(routing, document)
        except InvalidRequest as exc:
            if len(records) == 1:
                raise
            raise InvalidRequest(f"element {number}: {exc}") from exc
        if key is not None and len(key.encode()) > MAX_KEY_BYTES:
            raise InvalidRequest(f"routing key is too long: limit={MAX_KEY_BYTES} element={number}")
        stored_data.append(data)
        keys.append(key)
    prepared = Batch.of(stored_data, key=keys, node=records.node, meta=records.meta, hops=records.hops)
    if len(prepared.data) > 2 * MAX_APPEND_BYTES:
        raise InvalidRequest("the normalised records are too large")
    return prepared
