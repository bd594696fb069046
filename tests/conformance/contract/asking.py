"""Asks a stage and compares the answer with that of the oracle. Each function says what differs, or nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.conformance.contract.client import shown
from tests.conformance.contract.stages import Stage
from tests.oracle import aggregates, search
from tests.oracle.queries import Query
from tests.oracle.records import INCLUDES
from tests.oracle.search import Hit
from tests.oracle.values import EPOCH


def search_differs(
    stage: Stage, query: Query, sort: tuple[str, ...] = (), *, size: int = 150, pages: int = 2
) -> str | None:
    """Compares the hits of some pages: which, in which order, with scores, sort values, fields and sources."""
    expected = search.search(stage.config, stage.documents, query, sort)
    asked: dict[str, Any] = {"q": query.text(), "size": size, **({"sort": list(sort)} if sort else {})}
    for first in range(0, size * pages, size):
        answer = stage.stream.search(asked)
        found = answer.json() if answer.status_code == 200 else {}
        if found:
            problem = page_differs(stage, found, expected, expected[first : first + size])
        else:
            problem = f"status {answer.status_code}"
        if problem:
            return f"{stage.name}: {asked}: page from {first}: {problem}: {shown(answer)[:400]}"
        asked["search_after"] = found["next_search_after"]
        if asked["search_after"] is None:
            return None if first + size >= len(expected) else f"{stage.name}: {asked}: ended after {first + size}"
    return None


def page_differs(stage: Stage, found: dict[str, Any], all_of: list[Hit], wanted: list[Hit]) -> str | None:
    """Compares one page."""
    got = [hit["source"].get("n") for hit in found["hits"]]
    expected = [hit.position for hit in wanted]
    if got != expected:
        missing, extra = sorted({*expected} - {*got}), sorted({*got} - {*expected})
        at = next((n for n, pair in enumerate(zip(got, expected, strict=False)) if pair[0] != pair[1]), len(got))
        differs = f"first difference at {at}: {got[at : at + 3]}, {expected[at : at + 3]}"
        return f"missing {missing[:9]}, extra {extra[:9]}, {differs}"
    for hit, right in zip(found["hits"], wanted, strict=True):
        document = stage.documents[right.position]
        by = [
            hit["offset"] if value is None and hit["sort"][n] == hit["offset"] else value
            for n, value in enumerate(right.sort)
        ]
        for name, value, right_value in (
            ("sort", hit["sort"], by),
            ("score", hit["score"], right.score),
            ("source", hit["source"], document),
            ("fields", hit["fields"], search.fields(stage.config, document)),
        ):
            if value != right_value:
                return f"{name} of record {right.position}: {value!r} and not {right_value!r}"
    total, relation = found["total"]["value"], found["total"]["relation"]
    if not (total == len(all_of) if relation == "eq" else len(wanted) <= total <= len(all_of)):
        return f"total {found['total']} of {len(all_of)}"
    return None if found["coverage"]["complete"] else "not complete"


def aggregate_differs(stage: Stage, request: aggregates.Request) -> str | None:
    """Compares buckets, groups and measures."""
    expected = [
        {"start": iso(start), "end": iso(end), "groups": groups}
        for start, end, groups in aggregates.buckets(stage.config, stage.documents, request, INCLUDES)
    ]
    answer = stage.stream.aggregate(request.body())
    if answer.status_code != 200:
        return f"{stage.name}: {request.body()}: {shown(answer)[:400]}"
    found = answer.json()
    asked = f"{stage.name}: {request.body()}"
    if not found["coverage"]["complete"]:
        return f"{asked}: not complete: {found['coverage']}"
    for got, wanted in zip(found["buckets"], expected, strict=False):
        if got != wanted:
            return f"{asked}: bucket {wanted['start']}: {first_difference(got, wanted)}"
    if len(found["buckets"]) != len(expected):
        return f"{asked}: {len(found['buckets'])} buckets and not {len(expected)}"
    return None


def first_difference(got: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Of two buckets."""
    keys = [group["key"] for group in got["groups"]], [group["key"] for group in wanted["groups"]]
    if keys[0] != keys[1]:
        missing, extra = (
            [key for key in keys[1] if key not in keys[0]],
            [key for key in keys[0] if key not in keys[1]],
        )
        return f"groups: missing {missing[:5]}, extra {extra[:5]}, in another order: {not (missing or extra)}"
    pairs = zip(got["groups"], wanted["groups"], strict=True)
    return next((f"{one} and not {other}" for one, other in pairs if one != other), f"{got['start']} to {got['end']}")


def iso(instant_ms: int) -> str:
    """Returns an instant as the contract writes it."""
    at = EPOCH + timedelta(milliseconds=instant_ms)
    return datetime.isoformat(at.astimezone(UTC), timespec="milliseconds").replace("+00:00", "Z")
