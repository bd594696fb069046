"""What `_aggregate` must answer: every record of the range looked at and added up."""

from __future__ import annotations

import json
import math
from typing import Any

from tests.oracle.queries import Query
from tests.oracle.values import Config, Document, flat, number, raw, values

UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000}


class Request:
    """A request with its times in milliseconds, and its query as a tree."""

    def __init__(
        self,
        rollup: str,
        start_ms: int,
        end_ms: int,
        interval: str,
        query: Query | None = None,
        group_by: tuple[str, ...] = (),
        measures: tuple[str, ...] | None = None,
    ) -> None:
        self.rollup, self.start_ms, self.end_ms, self.interval = rollup, start_ms, end_ms, interval
        self.query, self.group_by, self.measures = query, group_by, measures

    def body(self) -> dict[str, Any]:
        """As it is posted."""
        asked: dict[str, Any] = {"rollup": self.rollup, "from": self.start_ms, "to": self.end_ms}
        asked["interval"] = self.interval
        if self.query:
            asked["q"] = self.query.text()
        if self.group_by:
            asked["group_by"] = list(self.group_by)
        if self.measures is not None:
            asked["measures"] = list(self.measures)
        return asked


def buckets(
    config: Config, documents: list[Document], request: Request, includes: dict[str, Query]
) -> list[tuple[int, int, list[dict[str, Any]]]]:
    """Start and end of each bucket with its groups, in order. `includes` has the tree of each `include`, by its text."""
    rollup = config["rollups"][request.rollup]
    width = int(request.interval[:-1]) * UNITS_MS[request.interval[-1]]
    found: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for document in documents:
        parts = contribution(config, rollup, document, includes)
        if parts is None or (request.query and request.query.score(config, document) is None):
            continue
        at, dimensions, numbers = parts
        if request.start_ms <= at < request.end_ms:
            key = printed({name: dimensions[name] for name in sorted(request.group_by)})
            found.setdefault(at // width * width, {}).setdefault(key, []).append(numbers)
    names = sorted(rollup["measures"] if request.measures is None else set(request.measures))
    return [
        (
            start,
            start + width,
            [group(rollup, names, key, found[start][key]) for key in sorted(found[start], key=str.encode)],
        )
        for start in sorted(found)
    ]


def contribution(
    config: Config, rollup: dict[str, Any], document: Document, includes: dict[str, Query]
) -> tuple[int, dict[str, Any], dict[str, Any]] | None:
    """Time, dimensions and the numbers of each measure; None if the record counts for nothing in this rollup."""
    if "include" in rollup and includes[rollup["include"]].score(config, document) is None:
        return None
    timestamp = only(config, rollup.get("timestampField", config["primaryTimestampField"]), document)
    if timestamp is None:
        return None
    dimensions = {}
    for name in rollup.get("dimensions", []):
        if len(present(config, name, document)) > 1:
            return None
        dimensions[name] = next((shown(value) for value in values(config, name, document)), None)
    numbers = {}
    for name, measure in rollup["measures"].items():
        numbers[name] = measured(config, measure, document, includes)
    return timestamp, dimensions, numbers


def measured(
    config: Config, measure: dict[str, Any], document: Document, includes: dict[str, Query]
) -> dict[str, Any] | None:
    """Count, sum, least, greatest and histogram that one record adds to a measure; None if it adds nothing."""
    if measure["kind"] == "count":
        holds = "include" not in measure or includes[measure["include"]].score(config, document) is not None
        return {"count": int(holds)}
    if measure["kind"] == "summary":
        value = only(config, measure["field"], document)
        if value is None:
            return None
        histogram = {2 ** int(math.log2(max(1, abs(value)))): 1} if measure.get("histogram") else None
        return {"count": 1, "sum": value, "min": value, "max": value, "histogram": histogram}
    parts = {}
    for part in ("count", "sum", "min", "max"):
        value = at(document, measure[f"{part}JsonPointer"])
        parts[part] = number(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        if parts[part] is None:
            return None
    counts = at(document, measure.get("histogramJsonPointer", "/-"))
    return {**parts, "histogram": {int(key): count for key, count in counts.items()} if counts else None}


def group(rollup: dict[str, Any], names: list[str], key: str, all_of: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns a group as it is answered."""
    return {
        "key": json.loads(key),
        "measures": {name: total(rollup["measures"][name], [numbers[name] for numbers in all_of]) for name in names},
    }


def total(measure: dict[str, Any], parts: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Returns the numbers of a measure over the records of a group."""
    parts = [part for part in parts if part is not None]
    count = sum(part["count"] for part in parts)
    if measure["kind"] == "count":
        return {"count": count}
    summed = sum(part["sum"] for part in parts) if parts else None
    histogram: dict[int, int] = {}
    for part in parts:
        for bucket, number_of in (part["histogram"] or {}).items():
            histogram[bucket] = histogram.get(bucket, 0) + number_of
    return {
        "count": count,
        "sum": summed,
        "min": min((part["min"] for part in parts), default=None),
        "max": max((part["max"] for part in parts), default=None),
        "avg": summed / count if count else None,
        **{f"p{share}": percentile(histogram, share / 100) for share in (50, 95, 99)},
        **({"histogram": {str(bucket): histogram[bucket] for bucket in sorted(histogram)}} if histogram else {}),
    }


def percentile(histogram: dict[int, int], share: float) -> int | None:
    """Returns the first bucket with which that share of the records is reached."""
    seen, of = 0, sum(histogram.values())
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= of * share:
            return bucket
    return None


def printed(key: dict[str, Any]) -> str:
    """Returns a group's key as JSON, which is what groups are ordered by."""
    return json.dumps(key, ensure_ascii=False, separators=(",", ":"))


def present(config: Config, name: str, document: Document) -> list[Any]:
    return [value for value in raw(config, name, document) if value is not None]


def only(config: Config, name: str, document: Document) -> Any:
    """Returns the one value of a field, or None if there is none or more than one."""
    if len(present(config, name, document)) != 1:
        return None
    return next(iter(values(config, name, document)), None)


def shown(value: Any) -> str:
    """Returns a dimension's value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def at(document: Any, pointer: str) -> Any:
    """Returns what is at a pointer, an array flattened; None if nothing is there."""
    for step in pointer.split("/")[1:]:
        if not isinstance(document, dict) or step not in document:
            return None
        document = document[step]
    return document if not isinstance(document, list) else flat(document)
