"""What a profile puts into the schema registry is a valid update, and its records fit and are found."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.json import jsontext, registry, search_config, validate
from headrace.query.language import canonical
from headrace.streams import profiles

INTERVAL = {"metric": "Latency", "unit": "ms", "windowStart": 0, "windowEnd": 10, "count": 1, "sum": 2}
SPAN = {
    "traceId": "5b8efff798038103d269b633813fc60c",
    "spanId": "086e83747d0e381e",
    "kind": 2,
    "startUnixNano": "1000000",
    "endUnixNano": "3500000",
    "resource": {"attributes": {"service.name": "Shop"}},
    "attributes": {"http.response.status_code": 503},
    "events": [{"name": "exception", "attributes": {"exception.message": "Card declined"}}],
}
EVENT = {"requestId": "R", "status": 503, "service": "Shop", "error": {"message": "Card declined"}}


def installed(profile: profiles.Profile) -> registry.Registry:
    update = profile.registry()
    assert update is not None
    return registry.install(update, name="s", next_offset=0)


@pytest.mark.parametrize("kind", ["evlog", "metrics", "otel-traces"])
def test_the_registry_shows_what_the_profile_declares(kind: str) -> None:
    profile = profiles.parse({"kind": kind})
    shown = registry.document(installed(profile), "s")
    update: dict[str, Any] = profile.registry() or {}
    assert shown["currentVersion"] == 1
    assert shown["schemas"] == {"1": update["schema"]}
    assert shown["search"] == update["search"]
    assert shown.get("routingKey") == update.get("routingKey")


@pytest.mark.parametrize(("kind", "record"), [("evlog", EVENT), ("metrics", INTERVAL), ("otel-traces", SPAN)])
def test_a_normalised_record_fits_and_keeps_its_key(kind: str, record: dict[str, Any]) -> None:
    profile = profiles.parse({"kind": kind})
    found = installed(profile)
    normal, key = profile.normalize(record, 0)
    stored = jsontext.loads(jsontext.dumps(normal))
    assert stored == normal
    validate.compile(found.schemas["1"]).check(stored)
    if found.routing_key is not None:
        assert registry.routing_key_of(found.routing_key, stored) == key


def test_the_fields_of_an_event_are_found() -> None:
    profile = profiles.parse({"kind": "evlog"})
    config = search_config.parse(installed(profile).search, 1)
    values = canonical.values(config, 1, profile.normalize(EVENT, 0)[0])
    assert values["requestId"] == ["R"]
    assert values["service"] == ["shop"]
    assert values["level"] == ["error"]
    assert values["timestamp"] == [0]
    assert values["error.message"] == [("card", "declined")]


def test_the_fields_of_a_span_are_found() -> None:
    profile = profiles.parse({"kind": "otel-traces"})
    config = search_config.parse(installed(profile).search, 1)
    values = canonical.values(config, 1, profile.normalize(SPAN, 0)[0])
    assert values["traceId"] == [SPAN["traceId"]]
    assert (values["service"], values["kind"], values["http.statusCode"]) == (["shop"], ["server"], [503])
    assert (values["timestamp"], values["duration"], values["error.isError"]) == ([1], [2.5], [True])
    assert (values["error.message"], values["events.name"]) == ([("card", "declined")], [("exception",)])
    assert set(config.rollups) == {"spans", "http_server"}


def test_the_system_stream_has_a_schema_without_search_or_key() -> None:
    profile = profiles.of_system_stream("__stream_metrics__")
    assert profile is not None
    found = installed(profile)
    assert (found.current_version, found.search, found.routing_key) == (1, None, None)
