"""Profiles: what the records of a stream mean.

profile         the interface with its default behaviour, and the profile of plain streams
evlog           one wide event per request
metrics         metric intervals
otel_traces     spans of traces; `spans` has their canonical form
state_protocol  changes of tables, and requests that wait for them (touch)

`parse` reads a profile document, `parse_update` the body of a change; `resource` returns what the HTTP API shows.
`prepare` checks and normalizes the records of an append. This module is the only place that knows the kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.batch import MAX_KEY_BYTES, Batch
from headrace.definition import Definition
from headrace.errors import Damaged, InvalidRequest
from headrace.json import jsontext, registry
from headrace.limits import MAX_APPEND_BYTES
from headrace.log.requests import JSON
from headrace.streams.profiles import strict
from headrace.streams.profiles.evlog import Evlog
from headrace.streams.profiles.metrics import Metrics
from headrace.streams.profiles.otel_traces import OtelTraces
from headrace.streams.profiles.profile import Generic, Profile
from headrace.streams.profiles.state_protocol import StateProtocol
from headrace.streams.values import METRIC_STREAMS

API_VERSION = "durable.streams/profile/v1"
DEFAULT: Profile = Generic()

_PARSERS: dict[str, Callable[[dict[str, Any]], Profile]] = {
    Evlog.kind: Evlog.parse,
    Generic.kind: Generic.parse,
    Metrics.kind: Metrics.parse,
    OtelTraces.kind: OtelTraces.parse,
    StateProtocol.kind: StateProtocol.parse,
}
KINDS = tuple(sorted(_PARSERS))


def parse(document: Any) -> Profile:
    """Parses a profile document, as posted or as stored.

    Raises:
        InvalidRequest: the document is not an object, or has an unknown kind, an unknown option, or an option of the
            wrong form.
    """
    options = strict.as_object(document, "profile")
    kind = strict.required_text(options.get("kind"), "profile.kind").strip()
    if kind not in _PARSERS:
        raise InvalidRequest(f"profile.kind must be {'|'.join(KINDS)}")
    return _PARSERS[kind](options)


def of(definition: Definition) -> Profile:
    """Returns the profile in a stream's definition.

    Raises:
        Damaged: the stored profile is invalid.
    """
    return definition.own if isinstance(definition.own, Profile) else definition.derive(_parse_stored)


def check_kind(definition: Definition | None, kind: str, what: str = "the stream") -> None:
    """Checks that a stream, which messages call `what`, has a kind of profile; None is the definition of a plain stream.

    Raises:
        InvalidRequest: it has another one.
    """
    found = DEFAULT if definition is None else of(definition)
    if found.kind != kind:
        raise InvalidRequest(f"{what} must have the profile {kind}: profile={found.kind}")


def _parse_stored(definition: Definition) -> Profile:
    try:
        profile = parse(definition.own.document())
    except InvalidRequest as exc:
        raise Damaged(f"definition has a profile that is none: reason={exc}") from exc
    return Metrics(system=not definition.own.families) if isinstance(profile, Metrics) else profile


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
    validator, profile = definition.validator, of(definition)
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


def parse_update(body: Any) -> Profile:
    """Parses the body of `POST …/_profile`: `{apiVersion?, profile}`.

    Raises:
        InvalidRequest: there is an unknown key, another version, no profile, or a profile that `parse` refuses.
    """
    update = strict.as_object(body, "profile update")
    strict.only(update, ("apiVersion", "profile"), "profileUpdate")
    if update.get("apiVersion", API_VERSION) != API_VERSION:
        raise InvalidRequest("invalid profile apiVersion")
    if "profile" not in update:
        raise InvalidRequest("missing profile")
    return parse(update["profile"])


def resource(profile: Profile) -> dict[str, Any]:
    """Returns the document with which `GET …/_profile` and a successful change are answered."""
    return {"apiVersion": API_VERSION, "profile": profile.document()}


def install(current: Profile, wanted: Profile, *, content_type: str, is_empty: bool) -> dict[str, Any] | None:
    """Checks a change of profile, and decides whether the schema registry is replaced.

    Returns the schema update that a new, empty registry begins with; None if the registry stays. It also stays if the
    kind of profile stays, so that changing options does not discard a schema that has evolved.

    Raises:
        InvalidRequest: the stream can't have this profile.
    """
    wanted.check_install(content_type=content_type, is_empty=is_empty, current=current)
    return None if wanted.kind == current.kind else wanted.registry()


def of_system_stream(name: str) -> Profile | None:
    """Returns the profile with which a system stream is created; None for any other name."""
    return Metrics(system=True) if name in METRIC_STREAMS else None


__all__ = [
    "API_VERSION",
    "DEFAULT",
    "KINDS",
    "Profile",
    "check_kind",
    "install",
    "of_system_stream",
    "parse",
    "parse_update",
    "prepare",
    "resource",
]
