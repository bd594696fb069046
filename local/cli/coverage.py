"""What an `_index_status` document amounts to: how much is indexed. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple


class State(NamedTuple):
    """How far the indexes of a stream are.

    Attributes:
        wanted: its schema or profile asks for an index, or records with routing keys have one.
        segments: published.
        covered: of them, covered by every index that is asked for.
        lag_ms: the largest lag of an index; None if none lags.
        bytes_at_rest: of all indexes.
        pending_records: not published yet; 0 if that was not asked.
    """

    wanted: bool
    segments: int
    covered: int
    lag_ms: int | None
    bytes_at_rest: int
    pending_records: int

    @property
    def word(self) -> str:
        """For people."""
        if not self.wanted:
            return "not asked for"
        return "complete" if self.covered == self.segments else "behind"

    def done(self, *, records: bool) -> bool:
        """Everything published is covered; with `records` everything is published, too."""
        return self.covered >= self.segments and not (records and self.pending_records)


def state_of(shown: dict[str, Any], pending_records: int = 0) -> State:
    """The state that a document shows."""
    segments = shown["segments"]["uploaded_count"]
    parts = list(shown["search_families"])
    parts += [part for part in (shown["routing_key_index"], shown["routing_key_lexicon"]) if is_kept(part)]
    lags = [int(part["lag_ms"]) for part in parts if part["lag_segments"] and part["lag_ms"] is not None]
    exact = [part for part in shown["exact_indexes"] if not part["fully_indexed_uploaded_segments"]]
    counts = [part.get("covered_segment_count", part.get("indexed_segment_count", 0)) for part in [*parts, *exact]]
    return State(
        wanted=bool(parts),
        segments=segments,
        covered=min([segments, *counts]),
        lag_ms=max(lags, default=None),
        bytes_at_rest=_bytes(shown),
        pending_records=pending_records,
    )


def is_kept(routing_keys: dict[str, Any]) -> bool:
    """Whether there is an index of routing keys: the schema has one, or records were appended with theirs."""
    return bool(routing_keys["configured"] or routing_keys["object_count"])


def _bytes(shown: dict[str, Any]) -> int:
    """Of every object once: the exact indexes stand in the family `exact`."""
    own = (shown["routing_key_lexicon"], *shown["search_families"])
    return sum(int(part["bytes_at_rest"]) for part in own)
