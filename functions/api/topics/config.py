"""The configuration of a topic as requests give it and answers show it (§ 0.10)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from headrace.topics.values import MAX_NUMBER, Durability, Kind, TopicConfig, check_name

Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
"""A u64 of the contract, as far as a slot has room for it."""
Signed = Annotated[int, msgspec.Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)]
_PRIORITIES = (-1000, 1000)
_OWN = TopicConfig()


class ConfigBody(msgspec.Struct, frozen=True):
    """A configuration in a request; what is missing has its default."""

    type: Kind = _OWN.type
    ttl_ms: Number = _OWN.ttl_ms
    cap_records: Number = _OWN.cap_records
    cap_bytes: Number = _OWN.cap_bytes
    discard: Literal["old", "reject"] = _OWN.discard
    durable: bool = False
    durability: Durability | None = None
    priority: Signed | None = _OWN.priority
    auto_priority: bool = _OWN.auto_priority
    auto_create: bool = _OWN.auto_create
    idempotency_window_ms: Number = _OWN.idempotency_window_ms
    dedupe_node: bool = _OWN.dedupe_node
    lease_ms: Number = _OWN.lease_ms
    claim_jitter_ms: Number = _OWN.claim_jitter_ms
    max_deliveries: Number = _OWN.max_deliveries
    dead_letter: str | None = _OWN.dead_letter
    leases_durable: bool = _OWN.leases_durable

    def config(self) -> TopicConfig:
        """Returns the configuration. An explicit `durability` wins over `durable`. Raises InvalidRequest if `dead_letter`
        is no name.
        """
        if self.dead_letter is not None:
            check_name(self.dead_letter)
        given: dict[str, Any] = {field: getattr(self, field) for field in TopicConfig.__struct_fields__}
        given["durability"] = self.durability or ("fsync" if self.durable else "disk")
        given["priority"] = None if self.priority is None else clamped(self.priority, *_PRIORITIES)
        return TopicConfig(**given)


def clamped(value: int, low: int, high: int) -> int:
    """Returns the number nearest to `value` from `low` to `high`."""
    return max(low, min(value, high))


def shown(config: TopicConfig) -> dict[str, Any]:
    """Returns a whole configuration as answers show it."""
    document = msgspec.structs.asdict(config)
    position = list(document).index("durability")
    members = list(document.items())
    return dict([*members[:position], ("durable", config.durable), *members[position:]])
