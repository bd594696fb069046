"""Parses the touch settings of a profile document. Every field of the Prisma Streams server is accepted, stored and
shown.

In that server, most settings limit the memory of one process, and answers get coarser when it falls behind. Here
touches are computed from the log, so only `onMissingBefore` and those of `templates` have an effect (except
`gcIntervalMs`, because a template that has been idle too long is inactive at once).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from headrace.errors import InvalidRequest
from headrace.streams.profiles import strict
from headrace.streams.profiles.numbers import Number, is_finite

_PLACE = "profile.touch"
ON_MISSING_BEFORE = ("coarse", "skipBefore", "error")


class _Rule(NamedTuple):
    default: int
    least: int
    most: int | None = None
    whole: bool = True
    open: bool = False  # `least` itself is not allowed

    def accepts(self, value: Number) -> bool:
        above = value > self.least if self.open else value >= self.least
        return above and (self.most is None or value <= self.most) and (not self.whole or value == int(value))

    def __str__(self) -> str:
        kind = "an integer " if self.whole else ""
        if self.most is not None:
            return f"{kind}in [{self.least},{self.most}]"
        return f"{kind}{'>' if self.open else '>='} {self.least}"


def _positive(default: int, *, whole: bool = False) -> _Rule:
    return _Rule(default, 0, whole=whole, open=True)


_TOP = {
    "coarseIntervalMs": _positive(100),
    "touchCoalesceWindowMs": _positive(100),
}
_LOAD = {
    "lagDegradeFineTouchesAtSourceOffsets": _Rule(5000, 0),
    "lagRecoverFineTouchesAtSourceOffsets": _Rule(1000, 0),
    "fineTouchBudgetPerBatch": _Rule(2000, 0),
    "fineTokensPerSecond": _Rule(200_000, 0),
    "fineBurstTokens": _Rule(400_000, 0),
    "lagReservedFineTouchBudgetPerBatch": _Rule(200, 0),
}
_MEMORY = {
    "bucketMs": _positive(100, whole=True),
    "filterPow2": _Rule(22, 10, 30),
    "k": _Rule(4, 1, 8),
    "pendingMaxKeys": _positive(100_000, whole=True),
    "keyIndexMaxKeys": _Rule(32, 1, 1024),
    "hotKeyTtlMs": _positive(10_000, whole=True),
    "hotTemplateTtlMs": _positive(10_000, whole=True),
    "hotMaxKeys": _positive(1_000_000, whole=True),
    "hotMaxTemplates": _positive(4096, whole=True),
}
_TEMPLATES = {
    "defaultInactivityTtlMs": _Rule(3_600_000, 0, whole=False),
    "lastSeenPersistIntervalMs": _positive(300_000),
    "gcIntervalMs": _positive(60_000),
    "maxActiveTemplatesPerEntity": _positive(256),
    "maxActiveTemplatesPerStream": _positive(2048),
    "activationRateLimitPerMinute": _Rule(100, 0, whole=False),
}
_KEYS = ("enabled", *_TOP, "onMissingBefore", *_LOAD, "memory", "templates")


class TemplateLimits(NamedTuple):
    """The limits for templates.

    Attributes:
        per_stream, per_entity: the maximum number of active templates; the least recently used ones are dropped.
        activations_per_minute: the maximum number of new activations per minute; 0 means no limit.
        default_ttl_ms: how long a template stays active without use, unless its activation says otherwise.
        persist_interval_ms: the least time between two writes of a template's use.
    """

    per_stream: Number
    per_entity: Number
    activations_per_minute: Number
    default_ttl_ms: int
    persist_interval_ms: Number


class TouchConfig(msgspec.Struct, frozen=True):
    """Checked touch settings.

    Attributes:
        settings: every field of the document with its value, `{"enabled": False}` if disabled.
    """

    settings: dict[str, Any]

    @property
    def enabled(self) -> bool:
        """Whether the stream has `/touch/*` routes."""
        return bool(self.settings["enabled"])

    @property
    def on_missing_before(self) -> str:
        """What an update without a usable old value touches: `coarse`, `skipBefore` or `error` (see `touch.wait`)."""
        return str(self.settings["onMissingBefore"])

    @property
    def limits(self) -> TemplateLimits:
        """The limits for templates. Only for enabled settings: disabled ones have none, so that this is a KeyError."""
        templates = self.settings["templates"]
        return TemplateLimits(
            per_stream=templates["maxActiveTemplatesPerStream"],
            per_entity=templates["maxActiveTemplatesPerEntity"],
            activations_per_minute=templates["activationRateLimitPerMinute"],
            default_ttl_ms=int(templates["defaultInactivityTtlMs"]),
            persist_interval_ms=templates["lastSeenPersistIntervalMs"],
        )

    def document(self) -> dict[str, Any]:
        """Returns the settings as the profile document shows them; the caller must not change them."""
        return self.settings


def parse_config(value: Any) -> TouchConfig:
    """Parses `profile.touch`. Disabled settings are not kept.

    Raises:
        InvalidRequest: there is an unknown field, or a value is out of bounds; the message says which.
    """
    given = strict.as_object(value, _PLACE)
    strict.only(given, _KEYS, _PLACE)
    enabled = given.get("enabled", False)
    if not isinstance(enabled, bool):
        raise InvalidRequest(f"{_PLACE}.enabled must be boolean")
    if not enabled:
        return TouchConfig({"enabled": False})
    missing_before = given.get("onMissingBefore", "coarse")
    if missing_before not in ON_MISSING_BEFORE:
        raise InvalidRequest(f"{_PLACE}.onMissingBefore must be {'|'.join(ON_MISSING_BEFORE)}")
    return TouchConfig(
        {
            "enabled": True,
            **_read(given, _TOP, _PLACE),
            "onMissingBefore": missing_before,
            **_read(given, _LOAD, _PLACE),
            "memory": _read_section(given, "memory", _MEMORY),
            "templates": _read_section(given, "templates", _TEMPLATES),
        }
    )


def _read_section(given: dict[str, Any], name: str, rules: dict[str, _Rule]) -> dict[str, Number]:
    place = f"{_PLACE}.{name}"
    section = strict.as_object(given.get(name, {}), place)
    strict.only(section, rules, place)
    return _read(section, rules, place)


def _read(section: dict[str, Any], rules: dict[str, _Rule], place: str) -> dict[str, Number]:
    return {name: _number(section.get(name, rule.default), rule, f"{place}.{name}") for name, rule in rules.items()}


def _number(value: Any, rule: _Rule, place: str) -> Number:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and is_finite(value)
    if not is_number or not rule.accepts(value):
        raise InvalidRequest(f"{place} must be {rule}")
    number: Number = value
    return int(number) if number == int(number) else number
