"""The settings that an operator may change, read from environment variables `HEADRACE_*`.

Components (clock, stores, clients) are built in `functions/wiring.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace import decoding

PREFIX = "HEADRACE_"
# What makes a process act for a person.
_PERSONAL = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_ROLE_ARN")

MAX_SPILL_BYTES = 256 * 1024
"""The most that an entry holds of its payload. So a page of a query, 1 MB, has at least three entries, which trims need."""

SETTING_OF_OUTPUT = {
    "WalTableName": "HEADRACE_WAL_TABLE",
    "CatalogTableName": "HEADRACE_CATALOG_TABLE",
    "WatermarksTableName": "HEADRACE_WATERMARKS_TABLE",
    "ProducersTableName": "HEADRACE_PRODUCERS_TABLE",
    "FollowsTableName": "HEADRACE_FOLLOWS_TABLE",
    "SessionsTableName": "HEADRACE_SESSIONS_TABLE",
    "FeaturesTableName": "HEADRACE_FEATURES_TABLE",
    "JobsTableName": "HEADRACE_JOBS_TABLE",
    "BucketName": "HEADRACE_BUCKET",
    "DelayQueueUrl": "HEADRACE_DELAY_QUEUE_URL",
    "IndexQueueUrl": "HEADRACE_INDEX_QUEUE_URL",
    "RelayQueueUrl": "HEADRACE_RELAY_QUEUE_URL",
    "FoldQueueUrl": "HEADRACE_FOLD_QUEUE_URL",
}
"""The setting that each output of the stack provides."""


def child_environment(base: Mapping[str, str], *layers: Mapping[str, str]) -> dict[str, str]:
    """Returns `base` without variables that hold a person's AWS identity or service endpoints, overlaid by `layers` in
    order.
    """
    kept = {
        name: value
        for name, value in base.items()
        if name not in _PERSONAL and not name.startswith("AWS_ENDPOINT_URL_")
    }
    for layer in layers:
        kept.update(layer)
    return kept


class SettingsError(ValueError):
    """A setting is missing or invalid. The message names the variable."""


class UnsafeTrimAge(SettingsError):
    """The trim age is so short that entries would be removed while writers still rely on them. `settings` are the
    conflicting ones.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            f"{PREFIX}TRIM_AGE_MS is below cached-state age plus the longest request: "
            f"minimum={settings.minimum_trim_age_ms} received={settings.trim_age_ms}"
        )
        self.settings = settings


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings with their defaults. Field `wal_table` is read from `HEADRACE_WAL_TABLE`, and so on.

    Attributes:
        stack: the name of the deployment, by which its metrics and alarms are told from those of others.
        host: the address that the API listens on, if known; without API keys it starts only on a loopback address.
        allow_reset: whether a namespace of feature tables may be reset, which removes everything in it.
        allowed_hosts: the hosts, separated by commas, that an API without keys obeys beside loopback, in the headers
            `Host` and `Origin`; `*` means any.
        base_url: where clients reach the api: the beginning of the URLs that receivers of webhooks are told.
        keys_age_ms: how long a process caches the API keys, or the signing keys, that it read from their secret.
        signing_keys: the keys that sign webhooks, if they are in no secret.
        webhook_function: the function that posts webhooks; webhook_loopback: whether they may go to this machine, which
            only the emulator allows.
        state_age_ms: how long a process may decide on cached state. A writer with older state verifies its entry before
            it acknowledges (the ack fence, docs/architecture.md).
        append_timeout_ms, request_timeout_ms: time limits of an append and of any request (docs/streams.md).
        spill_bytes: payloads larger than this (compressed) are stored in the bucket; at most 256 KiB.
        seal_bytes, seal_records, seal_age_ms: a log is sealed when it has so many unsealed bytes or records, or an
            entry of this age.
        trim_age_ms: entries younger than this are never trimmed; at least `minimum_trim_age_ms`.
        sse_seconds: how long an SSE response stays open (protocol § 10.2).
        live_timeout_ms: default wait of a long-poll.
        max_topics, max_routers, max_total_bytes: the most topics and queues, routers between them, and bytes of records in
            all of them; 0 means no limit.
        max_sse_connections, max_sse_connections_per_key: the most open streams of topics and queues (docs/limits.md).
        max_watch_sessions, max_watch_topics: the most watch sessions, and topics of one of them; 0 means no limit.
        sockets_url: where clients open WebSockets, if not at the API itself.
        sockets_endpoint: where the relay sends messages to their clients; empty for the SDK's own.
        max_inflight_per_key: the most requests of one key that one process works on.
        request_counts_ms: how often the api adds its object store requests to the streams' durable counters; 0 means
            never.
        metrics_interval_ms: how often the api appends its metrics to the stream `__stream_metrics__`; 0 means never.
        index_age_ms, index_segments: a log is indexed when a published segment has waited so long, or so many segments
            wait. A run is built from at most `index_segments` segments.
        compact_fanout: number of neighbouring runs of one level that are merged into one.
        index_jobs: maximum number of job runs at a time; 0 means that none is started.
        index_retire_age_ms: objects of a replaced run are kept at least so long, for readers that still use it.
        merge_segments: least number of small neighbouring segments that are merged into one; 0 turns merging off.
        merge_age_ms: only segments whose records are at least this old are merged.
        merge_retire_ms: objects of merged segments are kept at least so long; must be longer than a job run may take.
        spark_application, spark_role: the EMR Serverless application, and the ARN of the role of its job runs.
        spark_entry_point, spark_packages, spark_environment: locations of the job's code (`s3://bucket/key`): the file
            that is started, the zip of our packages, and the tgz of their dependencies.
    """

    stack: str = "headrace"
    wal_table: str = ""
    catalog_table: str = ""
    watermarks_table: str = ""
    producers_table: str = ""
    follows_table: str = ""
    sessions_table: str = ""
    features_table: str = ""
    jobs_table: str = ""
    bucket: str = ""
    delay_queue_url: str = ""
    index_queue_url: str = ""
    relay_queue_url: str = ""
    fold_queue_url: str = ""
    spark_application: str = ""
    spark_role: str = ""
    spark_entry_point: str = ""
    spark_packages: str = ""
    spark_environment: str = ""
    api_keys: str = ""
    api_keys_secret: str = ""
    keys_age_ms: int = 60_000
    allow_insecure_no_auth: bool = False
    allow_reset: bool = False
    signing_keys: str = ""
    signing_keys_secret: str = ""
    webhook_function: str = ""
    webhook_loopback: bool = False
    host: str = ""
    base_url: str = ""
    allowed_hosts: str = ""
    cold: bool = False
    state_age_ms: int = 60_000
    append_timeout_ms: int = 3_000
    request_timeout_ms: int = 5_000
    live_timeout_ms: int = 3_000
    sse_seconds: int = 60
    sockets_url: str = ""
    sockets_endpoint: str = ""
    max_topics: int = 100_000
    max_routers: int = 10_000
    max_sse_connections: int = 10_000
    max_sse_connections_per_key: int = 1_000
    max_watch_sessions: int = 10_000
    max_watch_topics: int = 256
    max_inflight_per_key: int = 1_000
    max_total_bytes: int = 0
    spill_bytes: int = 32 * 1024
    seal_bytes: int = 16 * 1024 * 1024
    seal_records: int = 100_000
    seal_age_ms: int = 300_000
    trim_age_ms: int = 900_000
    request_counts_ms: int = 10_000
    metrics_interval_ms: int = 60_000
    index_age_ms: int = 900_000
    index_segments: int = 16
    compact_fanout: int = 8
    index_jobs: int = 1
    index_retire_age_ms: int = 300_000
    merge_segments: int = 16
    merge_age_ms: int = 600_000
    merge_retire_ms: int = 7_200_000

    @property
    def minimum_trim_age_ms(self) -> int:
        """The least safe trim age: the age of cached state plus the longest request. A writer with older state checks that
        its entry counts before it acknowledges it.
        """
        return self.state_age_ms + max(self.append_timeout_ms, self.request_timeout_ms)

    @property
    def table_names(self) -> dict[str, str]:
        """The deployed name of each table, by the name that guards use."""
        fields = (name for name in self.__struct_fields__ if name.endswith("_table"))
        return {name.removesuffix("_table"): getattr(self, name) for name in fields}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Reads the settings from `HEADRACE_*` variables; empty ones count as absent.

        Raises:
            SettingsError: a value has the wrong type or is out of bounds; `UnsafeTrimAge` for an unsafe trim age.
        """
        given: dict[str, Any] = {}
        for name in cls.__struct_fields__:
            value = environment.get(PREFIX + name.upper(), "")
            if value:
                given[name] = value
        try:
            settings = decoding.from_builtins(given, cls, strict=False)
        except msgspec.ValidationError as exc:
            raise SettingsError(f"bad setting {PREFIX}*: {exc}") from exc
        if settings.trim_age_ms < settings.minimum_trim_age_ms:
            raise UnsafeTrimAge(settings)
        if settings.index_segments < 1 or settings.compact_fanout < 2:
            raise SettingsError(
                f"{PREFIX}INDEX_SEGMENTS is below 1 or {PREFIX}COMPACT_FANOUT below 2: "
                f"received={settings.index_segments},{settings.compact_fanout}"
            )
        below_zero = [name for name in given if name.startswith("max_") and getattr(settings, name) < 0]
        if below_zero:
            raise SettingsError(f"{PREFIX}{below_zero[0].upper()} is below 0")
        if settings.spill_bytes > MAX_SPILL_BYTES:
            raise SettingsError(f"{PREFIX}SPILL_BYTES is above {MAX_SPILL_BYTES}: received={settings.spill_bytes}")
        if settings.merge_segments == 1 or settings.merge_segments < 0:
            raise SettingsError(
                f"{PREFIX}MERGE_SEGMENTS is neither 0 nor at least 2: received={settings.merge_segments}"
            )
        return settings
