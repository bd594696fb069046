"""The document of `_index_status`: how far segments, manifest and indexes of a stream are. Pure.

The contract's indexes are families of index runs here. A run covers offsets; the document tells of segments.

    routing_key_index, routing_key_lexicon     lex, of whatever plan: the same objects serve both
    exact_indexes, search family exact         kw, of the plan in force: the same objects serve all fields
    search families col, fts, agg, mblk        the families of these names, of the plan in force
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from functions.api.door import times
from functions.api.streams.inspection.seen import Coverage, Seen
from headrace.index.descriptors import Family, Run
from headrace.query.language.config import SearchConfig
from headrace.streams import profiles

Json = dict[str, Any]

COMPANIONS: dict[str, Family] = {"exact": "kw", "col": "col", "fts": "fts", "agg": "agg", "mblk": "mblk"}


def document(seen: Seen) -> Json:
    """What `_index_status` answers. Its fields are those of the stream, none of them depends on the clock."""
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
    """A moment as RFC 3339."""
    return None if millis is None else times.text_of(millis)


def _plan_generation(seen: Seen) -> int:
    """Rises with each change of what is searched, as it rises with each change of the definition."""
    return seen.state.definition.number if seen.state.definition is not None else 0


def at_rest(seen: Seen) -> list[Run]:
    """Every run whose objects stand in the bucket: those that are read, of whatever plan, and those that were replaced."""
    return [*seen.indexed.manifest.runs, *(retired.run for retired in seen.indexed.manifest.retired)]


def bytes_at_rest(seen: Seen, family: Family) -> int:
    """Of a family, in every run that stands in the bucket."""
    return sum(run.sizes.get(family, 0) for run in at_rest(seen))


def object_count(seen: Seen, family: Family) -> int:
    """Of a family, in every run that stands in the bucket."""
    return sum(run.objects.get(family, 0) for run in at_rest(seen))


def _index(seen: Seen, family: Family, *, is_kept: bool) -> Json:
    """Progress of an index, told in segments; nothing lags of one that is not kept."""
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
    """Routing keys do not depend on the plan, all else does."""
    return seen.indexed.by_any if family == "lex" else seen.indexed.by_plan


def _serving(seen: Seen, family: Family) -> list[Run]:
    """The runs that are read for a family."""
    return [run for run in seen.indexed.manifest.runs if family == "lex" or run.plan == seen.indexed.plan]


def _updated(runs: Sequence[Run]) -> str | None:
    return text_or_none(max((run.created_ms for run in runs), default=None))


def _is_full(seen: Seen, coverage: Coverage) -> bool:
    return coverage.segments >= seen.published.segments


def _stale_segments(seen: Seen) -> int:
    """For so many something was built as is no longer configured, and nothing yet as is."""
    return max(0, seen.indexed.searched.segments - seen.indexed.by_plan.segments)


def _lag(seen: Seen, coverage: Coverage, *, is_kept: bool) -> Json:
    """How many published segments are not covered, and how much older than the stream's newest record their first is.

    Counted in append times, not against the clock: a document that changed by itself would end every wait for a change.
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
        profile = profiles.of(seen.definition)
        yield from ((family, [profile.kind]) for family in profile.families)
