"""The document of `_index_status`: how far segments, manifest and indexes of a stream are. Pure.

Nothing builds indexes yet: of each index that the schema asks for nothing is covered, and everything published lags.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from functions.api import times
from functions.api.inspection.seen import Seen
from headrace.search.config import SearchConfig

Json = dict[str, Any]


def document(seen: Seen) -> Json:
    """What `_index_status` answers. Its fields are those of the stream, none of them depends on the clock."""
    published = seen.published
    keyed = seen.definition.registry.routing_key is not None
    families = list(_families(seen))
    return {
        "stream": seen.name,
        "profile": seen.definition.profile.kind,
        "desired_index_plan_generation": _plan_generation(seen) if families else 0,
        "segments": {"total_count": published.segments, "uploaded_count": published.segments},
        "manifest": {
            "generation": published.generation,
            "uploaded_generation": published.generation,
            "last_uploaded_at": text_or_none(published.published_ms),
            "last_uploaded_etag": published.digest,
            "last_uploaded_size_bytes": str(published.object_bytes) if published.generation else None,
        },
        "routing_key_index": {"configured": keyed, **_index(seen, configured=keyed)},
        "routing_key_lexicon": {"configured": keyed, **_index(seen, configured=keyed)},
        "exact_indexes": [
            {
                "name": name,
                "kind": kind,
                **_index(seen, configured=True),
                "stale_configuration": published.segments > 0,
            }
            for name, kind in _exact_fields(seen.definition.search)
        ],
        "bundled_companions": {
            "object_count": 0,
            "bytes_at_rest": "0",
            "fully_indexed_uploaded_segments": not families or published.segments == 0,
        },
        "search_families": [_family(seen, family, fields) for family, fields in families],
    }


def text_or_none(millis: int | None) -> str | None:
    """A moment as RFC 3339."""
    return None if millis is None else times.text_of(millis)


def _plan_generation(seen: Seen) -> int:
    """Rises with each change of what is searched, as it rises with each change of the definition."""
    return seen.state.definition.number if seen.state.definition is not None else 0


def _index(seen: Seen, *, configured: bool) -> Json:
    """Progress of an index, told in segments."""
    return {
        "indexed_segment_count": 0,
        **_lag(seen, configured=configured),
        "bytes_at_rest": "0",
        "object_count": 0,
        "active_run_count": 0,
        "retired_run_count": 0,
        "fully_indexed_uploaded_segments": not configured or seen.published.segments == 0,
        "updated_at": None,
    }


def _family(seen: Seen, family: str, fields: list[str]) -> Json:
    return {
        "family": family,
        "fields": fields,
        "plan_generation": _plan_generation(seen),
        "covered_segment_count": 0,
        "contiguous_covered_segment_count": 0,
        **_lag(seen, configured=True),
        "bytes_at_rest": "0",
        "object_count": 0,
        "stale_segment_count": seen.published.segments,
        "fully_indexed_uploaded_segments": seen.published.segments == 0,
        "updated_at": None,
    }


def _lag(seen: Seen, *, configured: bool) -> Json:
    """How many published segments are not covered, and how much older than the stream's newest record their first is.

    Counted in append times, not against the clock: a document that changed by itself would end every wait for a change.
    """
    oldest_ms = seen.published.oldest_ms
    if not configured or oldest_ms is None:
        return {"lag_segments": 0, "lag_ms": None}
    return {"lag_segments": seen.published.segments, "lag_ms": str(seen.last_append_ms - oldest_ms)}


def _exact_fields(search: SearchConfig | None) -> list[tuple[str, str]]:
    if search is None:
        return []
    return [(name, field.kind) for name, field in sorted(search.fields.items()) if field.exact]


def _families(seen: Seen) -> Iterator[tuple[str, list[str]]]:
    """The families that the definition asks for, with the fields (of `agg`: the rollups) that each serves."""
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
        profile = seen.definition.profile
        yield from ((family, [profile.kind]) for family in profile.families)
