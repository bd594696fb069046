"""Builds the documents of `_index_status` and `_details`, and their entity tags. Does no I/O."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from functions.api.streams.inspection.inspector import Coverage, Seen
from headrace import instants
from headrace.index.descriptors import Family, Run
from headrace.json import jsontext, registry
from headrace.query.language.canonical import SearchConfig
from headrace.streams import profiles
from headrace.streams.values import state_of

Json = dict[str, Any]

COMPANIONS: dict[str, Family] = {"exact": "kw", "col": "col", "fts": "fts", "agg": "agg", "mblk": "mblk"}


def index_status(seen: Seen) -> Json:
    """Returns the JSON document of `_index_status`: for each index of the stream, how far it is built, its size and its
    lag. It depends only on the stream, not on the clock.
    """
    published = seen.published
    keyed = seen.definition.registry.routing_key is not None
    routing_keys = {"configured": keyed, **_index(seen, "lex", is_kept=keyed or object_count(seen, "lex") > 0)}
    families = list(_families(seen))
    return {
        "stream": seen.name,
        "profile": seen.definition.own.kind,
        "desired_index_plan_generation": _plan_generation(seen) if families else 0,
        "segments": {"total_count": published.segments, "uploaded_count": published.segments},
        "manifest": {
            "generation": published.generation,
            "uploaded_generation": published.generation,
            "last_uploaded_at": text_or_none(published.published_ms),
            "last_uploaded_etag": published.digest,
            "last_uploaded_size_bytes": str(published.object_bytes) if published.generation else None,
        },
        "routing_key_index": routing_keys,
        "routing_key_lexicon": routing_keys,
        "exact_indexes": [
            {
                "name": name,
                "kind": kind,
                **_index(seen, "kw", is_kept=True),
                "stale_configuration": _stale_segments(seen) > 0,
            }
            for name, kind in _exact_fields(seen.definition.search)
        ],
        "bundled_companions": {
            "object_count": sum(object_count(seen, family) for family in COMPANIONS.values()),
            "bytes_at_rest": str(sum(bytes_at_rest(seen, family) for family in COMPANIONS.values())),
            "fully_indexed_uploaded_segments": not families or _is_full(seen, seen.indexed.by_plan),
        },
        "search_families": [_family(seen, family, fields) for family, fields in families],
    }


def text_or_none(millis: int | None) -> str | None:
    """Formats an instant as RFC 3339; None if there is none."""
    return None if millis is None else instants.text_of(millis)


def _plan_generation(seen: Seen) -> int:
    """Returns a number that rises with each change of the search configuration (in fact with each change of the
    definition); 0 if there is no definition.
    """
    return seen.state.definition.number if seen.state.definition is not None else 0


def at_rest(seen: Seen) -> list[Run]:
    """Returns every run whose objects are in the bucket: the current runs, of any plan, and the retired ones."""
    return [*seen.indexed.manifest.runs, *(retired.run for retired in seen.indexed.manifest.retired)]


def bytes_at_rest(seen: Seen, family: Family) -> int:
    """Returns the bytes of the objects that hold this family (kind of index rows), over all index runs in the bucket."""
    return sum(run.sizes.get(family, 0) for run in at_rest(seen))


def object_count(seen: Seen, family: Family) -> int:
    """Returns the number of objects that hold this family (kind of index rows), over all index runs in the bucket."""
    return sum(run.objects.get(family, 0) for run in at_rest(seen))


def _index(seen: Seen, family: Family, *, is_kept: bool) -> Json:
    """Returns the members that describe an index: its progress, counted in segments, its lag and its size. An index
    that the stream does not have (`is_kept` is False) counts as complete and never lags.
    """
    coverage = _coverage(seen, family)
    runs = _serving(seen, family)
    return {
        "indexed_segment_count": coverage.segments,
        **_lag(seen, coverage, is_kept=is_kept),
        "bytes_at_rest": str(bytes_at_rest(seen, family)),
        "object_count": object_count(seen, family),
        "active_run_count": len(runs),
        "retired_run_count": sum(family in retired.run.sizes for retired in seen.indexed.manifest.retired),
        "fully_indexed_uploaded_segments": not is_kept or _is_full(seen, coverage),
        "updated_at": _updated(runs),
    }


def _family(seen: Seen, family: str, fields: list[str]) -> Json:
    coverage = seen.indexed.by_plan
    kind = COMPANIONS[family]
    return {
        "family": family,
        "fields": fields,
        "plan_generation": _plan_generation(seen),
        "covered_segment_count": coverage.segments,
        "contiguous_covered_segment_count": coverage.contiguous,
        **_lag(seen, coverage, is_kept=True),
        "bytes_at_rest": str(bytes_at_rest(seen, kind)),
        "object_count": object_count(seen, kind),
        "stale_segment_count": _stale_segments(seen),
        "fully_indexed_uploaded_segments": _is_full(seen, coverage),
        "updated_at": _updated(_serving(seen, kind)),
    }


def _coverage(seen: Seen, family: Family) -> Coverage:
    """Returns the coverage that applies to a family: routing keys do not depend on the plan, all other families do."""
    return seen.indexed.by_any if family == "lex" else seen.indexed.by_plan


def _serving(seen: Seen, family: Family) -> list[Run]:
    """Returns the index runs that answer queries for a family: those of the current plan; for routing keys, all that
    are not retired.
    """
    return [run for run in seen.indexed.manifest.runs if family == "lex" or run.plan == seen.indexed.plan]


def _updated(runs: Sequence[Run]) -> str | None:
    return text_or_none(max((run.created_ms for run in runs), default=None))


def _is_full(seen: Seen, coverage: Coverage) -> bool:
    return coverage.segments >= seen.published.segments


def _stale_segments(seen: Seen) -> int:
    """Returns the number of segments that are indexed for an older configuration, but not yet for the current one."""
    return max(0, seen.indexed.searched.segments - seen.indexed.by_plan.segments)


def _lag(seen: Seen, coverage: Coverage, *, is_kept: bool) -> Json:
    """Returns the members `lag_segments` (published segments that the index does not cover) and `lag_ms` (how much
    older the first record of these is than the stream's newest record); 0 and None if none is missing.

    It compares append times and does not use the clock: a document that changes by itself would end every wait for a
    change.
    """
    if not is_kept or coverage.missing_ms is None:
        return {"lag_segments": 0, "lag_ms": None}
    return {
        "lag_segments": seen.published.segments - coverage.segments,
        "lag_ms": str(seen.last_append_ms - coverage.missing_ms),
    }


def _exact_fields(search: SearchConfig | None) -> list[tuple[str, str]]:
    if search is None:
        return []
    return [(name, field.kind) for name, field in sorted(search.fields.items()) if field.exact]


def _families(seen: Seen) -> Iterator[tuple[str, list[str]]]:
    """Yields the families that the definition asks for, each with its fields; for `agg`, with its rollups."""
    search = seen.definition.search
    if search is not None:
        fields = sorted(search.fields.items())
        served = {
            "exact": [name for name, _ in _exact_fields(search)],
            "col": [name for name, field in fields if field.column],
            "fts": [name for name, field in fields if field.kind == "text" or field.prefix],
            "agg": sorted(search.rollups or {}),
        }
        yield from ((family, names) for family, names in served.items() if names)
        profile = profiles.of(seen.definition)
        yield from ((family, [profile.kind]) for family in profile.families)


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


def details(seen: Seen, requests: Mapping[str, int]) -> Json:
    """Returns the JSON document of `_details`: the stream's properties, profile, schema, index status, storage and
    counters.

    Args:
        requests: the stream's counters of requests to the object store, by `<kind>.<operation>`.
    """
    return {
        "stream": _summary(seen),
        "profile": profiles.resource(profiles.of(seen.definition)),
        "schema": registry.document(seen.definition.registry, seen.name),
        "index_status": index_status(seen),
        "storage": _storage(seen),
        "object_store_requests": _requests(requests),
    }


def etag(kind: str, found: Json) -> str:
    """Returns a weak entity tag, which stays the same while nothing of the stream changes.

    The request counters are left out, because every read of the stream would change them.

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
        "created_at": instants.text_of(config.created_ms),
        "updated_at": instants.text_of(max(seen.committed_ms, published.published_ms or 0)),
        "expires_at": text_or_none(seen.deadline_ms),
        "ttl_seconds": None if config.ttl_ms is None else config.ttl_ms // 1000,
        "stream_seq": state_of(state).last_seq,
        "closed": state.is_final,
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
        "last_append_at": instants.text_of(seen.last_append_ms),
        "last_segment_cut_at": instants.text_of(published.published_ms or config.created_ms),
    }


def _pending_bytes(seen: Seen) -> str:
    return str(seen.state.total_bytes - seen.published.sealed_bytes)


def _storage(seen: Seen) -> Json:
    published, pending_bytes = seen.published, _pending_bytes(seen)
    manifest_bytes = published.object_bytes + published.page_bytes
    meta_bytes = manifest_bytes + seen.definition_bytes
    runs = at_rest(seen)
    index_bytes = seen.indexed.object_bytes + sum(run.size + sum(run.sizes.values()) for run in runs)
    keyed_objects = object_count(seen, "lex")
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
            "exact_index_object_count": object_count(seen, "kw"),
            "bundled_companion_object_count": sum(object_count(seen, family) for family in COMPANIONS.values()),
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
            f"{name}_bytes": str(bytes_at_rest(seen, family)) for name, family in COMPANIONS.items()
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
