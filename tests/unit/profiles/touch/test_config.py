"""Touch settings: defaults of every field, bounds of each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from headrace.errors import InvalidRequest
from headrace.streams.profiles.touch.config import parse_config
from tests.unit.profiles.json_values import VALUES, objects

DEFAULTS = {
    "enabled": True,
    "coarseIntervalMs": 100,
    "touchCoalesceWindowMs": 100,
    "onMissingBefore": "coarse",
    "lagDegradeFineTouchesAtSourceOffsets": 5000,
    "lagRecoverFineTouchesAtSourceOffsets": 1000,
    "fineTouchBudgetPerBatch": 2000,
    "fineTokensPerSecond": 200000,
    "fineBurstTokens": 400000,
    "lagReservedFineTouchBudgetPerBatch": 200,
    "memory": {
        "bucketMs": 100,
        "filterPow2": 22,
        "k": 4,
        "pendingMaxKeys": 100000,
        "keyIndexMaxKeys": 32,
        "hotKeyTtlMs": 10000,
        "hotTemplateTtlMs": 10000,
        "hotMaxKeys": 1000000,
        "hotMaxTemplates": 4096,
    },
    "templates": {
        "defaultInactivityTtlMs": 3600000,
        "lastSeenPersistIntervalMs": 300000,
        "gcIntervalMs": 60000,
        "maxActiveTemplatesPerEntity": 256,
        "maxActiveTemplatesPerStream": 2048,
        "activationRateLimitPerMinute": 100,
    },
}


def test_every_field_has_its_default() -> None:
    document = parse_config({"enabled": True}).document()
    assert document == DEFAULTS
    assert list(document) == list(DEFAULTS)


def test_disabled_settings_are_forgotten() -> None:
    assert parse_config({}).document() == {"enabled": False}
    assert parse_config({"enabled": False, "coarseIntervalMs": 5}).document() == {"enabled": False}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"coarseIntervalMs": 0}, "profile.touch.coarseIntervalMs must be > 0"),
        ({"coarseIntervalMs": "75"}, "profile.touch.coarseIntervalMs must be > 0"),
        ({"coarseIntervalMs": 10**400}, "profile.touch.coarseIntervalMs must be > 0"),
        ({"onMissingBefore": "guess"}, "onMissingBefore must be coarse|skipBefore|error"),
        ({"fineBurstTokens": 1.5}, "fineBurstTokens must be an integer >= 0"),
        ({"memory": []}, "profile.touch.memory must be an object"),
        ({"memory": {"filterPow2": 31}}, "profile.touch.memory.filterPow2 must be an integer in [10,30]"),
        ({"memory": {"bits": 1}}, "profile.touch.memory.bits is not supported"),
        ({"templates": {"maxActiveTemplatesPerEntity": 0}}, "maxActiveTemplatesPerEntity must be > 0"),
        ({"templates": {"activationRateLimitPerMinute": -1}}, "activationRateLimitPerMinute must be >= 0"),
        ({"storage": "sqlite"}, "profile.touch.storage is not supported"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_refused_with_its_place(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_config({"enabled": True, **fields})
    assert says in str(refused.value)


@given(VALUES | objects(*DEFAULTS))
def test_what_is_read_reads_the_same_again(value: Any) -> None:
    try:
        config = parse_config(value)
    except InvalidRequest:
        return
    assert parse_config(config.document()) == config
