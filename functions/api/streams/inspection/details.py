"""The document of `_details`: everything about one stream; and the tags of both documents. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from functions.api.door import times
from functions.api.streams.inspection import status
from functions.api.streams.inspection.seen import Seen
from functions.api.streams.inspection.status import text_or_none
from headrace.json import jsontext, registry
from headrace.streams import profiles

Json = dict[str, Any]

_OPERATIONS = ("put", "get", "head", "list", "delete")
_READS = ("get", "head", "list")
# Always shown, these first; others (docs/inspection.md) when they were asked for.
_ARTIFACTS = (
    "manifest",
    "schema_registry",
    "segment",
    "bundled_companion",
    "routing_index",
    "routing_key_lexicon",
    "exact_index",
)


def document(seen: Seen, requests: Mapping[str, int]) -> Json:
    """What `_details` answers.

    Args:
        requests: durable counters of the stream's requests to the object store, by `<kind>.<operation>`.
    """
    return {
        "stream": _summary(seen),
        "profile": profiles.resource(profiles.of(seen.definition)),
        "schema": registry.document(seen.definition.registry, seen.name),
        "index_status": status.document(seen),
        "storage": _storage(seen),
        "object_store_requests": _requests(requests),
    }


def etag(kind: str, found: Json) -> str:
    """Weak: the same while nothing of the stream changes.

    The request counters are left out, or every read of the stream would be a change; all else is of the stream alone.

    Args:
        kind: `details` or `index_status`.
        found: the document.
    """
    lasting = {name: value for name, value in found.items() if name != "object_store_requests"}
    digest = hashlib.sha1(jsontext.dumps(lasting), usedforsecurity=False).hexdigest()
    return f'W/"{kind}:{digest}"'


def _summary(seen: Seen) -> Json:
    config, state, published = seen.config, seen.state, seen.published
    pending_rows = str(state.next_offset - published.end_offset)
    pending_bytes = _pending_bytes(seen)
    profile = profiles.of(seen.definition)
    observability = profile.observability(seen.name)
    return {
        "name": seen.name,
        "content_type": config.content_type,
        "profile": profile.kind,
        **({"observability": observability} if observability is not None else {}),
        "created_at": times.text_of(config.created_ms),
        "updated_at": times.text_of(max(seen.committed_ms, published.published_ms or 0)),
        "expires_at": text_or_none(seen.deadline_ms),
        "ttl_seconds": None if config.ttl_ms is None else config.ttl_ms // 1000,
        "stream_seq": state.last_seq,
        "closed": state.closed,
        "epoch": seen.incarnation,
        "next_offset": str(state.next_offset),
        "sealed_through": str(published.end_offset - 1),
        "uploaded_through": str(published.end_offset - 1),
        "segment_count": published.segments,
        "uploaded_segment_count": published.segments,
        "pending_rows": pending_rows,
        "pending_bytes": pending_bytes,
        "total_size_bytes": str(state.total_bytes),
        "wal_rows": pending_rows,
        "wal_bytes": pending_bytes,
        "last_append_at": times.text_of(seen.last_append_ms),
        "last_segment_cut_at": times.text_of(published.published_ms or config.created_ms),
    }


def _pending_bytes(seen: Seen) -> str:
    return str(seen.state.total_bytes - seen.published.sealed_bytes)


def _storage(seen: Seen) -> Json:
    published, pending_bytes = seen.published, _pending_bytes(seen)
    manifest_bytes = published.object_bytes + published.page_bytes
    meta_bytes = manifest_bytes + seen.definition_bytes
    runs = status.at_rest(seen)
    index_bytes = seen.indexed.object_bytes + sum(run.size + sum(run.sizes.values()) for run in runs)
    keyed_objects = status.object_count(seen, "lex")
    return {
        "object_storage": {
            "total_bytes": str(published.segment_bytes + index_bytes + meta_bytes),
            "segments_bytes": str(published.segment_bytes),
            "indexes_bytes": str(index_bytes),
            "manifest_and_meta_bytes": str(meta_bytes),
            "manifest_bytes": str(manifest_bytes),
            "schema_registry_bytes": str(seen.definition_bytes),
            "segment_object_count": published.segments,
            "routing_index_object_count": keyed_objects,
            "routing_lexicon_object_count": keyed_objects,
            "exact_index_object_count": status.object_count(seen, "kw"),
            "bundled_companion_object_count": sum(
                status.object_count(seen, family) for family in status.COMPANIONS.values()
            ),
        },
        "local_storage": {
            "total_bytes": pending_bytes,
            "wal_retained_bytes": pending_bytes,
            "pending_tail_bytes": pending_bytes,
            "pending_sealed_segment_bytes": "0",
            "segment_cache_bytes": "0",
            "routing_index_cache_bytes": "0",
            "exact_index_cache_bytes": "0",
            "lexicon_index_cache_bytes": "0",
            "companion_cache_bytes": "0",
            "sqlite_shared_total_bytes": "0",
        },
        "companion_families": {
            f"{name}_bytes": str(status.bytes_at_rest(seen, family)) for name, family in status.COMPANIONS.items()
        },
    }


def _requests(counts: Mapping[str, int]) -> Json:
    by_artifact: dict[str, Counter[str]] = {artifact: Counter() for artifact in _ARTIFACTS}
    total: Counter[str] = Counter()
    for name, count in sorted(counts.items()):
        artifact, _, operation = name.partition(".")
        by_artifact.setdefault(artifact, Counter())[operation] += count
        total[operation] += count
    return {
        **_operations(total),
        "by_artifact": [{"artifact": artifact, **_operations(found)} for artifact, found in by_artifact.items()],
    }


def _operations(found: Counter[str]) -> Json:
    return {
        **{f"{operation}s": str(found[operation]) for operation in _OPERATIONS},
        "reads": str(sum(found[operation] for operation in _READS)),
    }
