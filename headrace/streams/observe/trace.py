"""The spans of a trace as a forest, and what follows from it: the root that most probably is the request, the critical
path, the calls between services, and the spans that failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace import instants

MAX_DEPTH = 64  # of the tree: documents that are nested deeper are refused by many readers

Record = Mapping[str, Any]


class Trace:
    """The spans of a trace, each once, as a forest. A span whose parent is not among them is a root; so is the earliest of
    spans that are each other's parents, which only a broken exporter sends.

    Attributes:
        spans: the spans in the order of time.
        duplicates: how many copies of spans were left out.
        id: the trace id of the first span; None without spans.
        missing: the ids of parents that are not among the spans, sorted.
        root: the id of the root that most probably is the request; None without spans.
        is_cut: whether the tree leaves out spans that are too deep.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        distinct: dict[tuple[Any, Any], Record] = {}
        for span in sorted(records, key=_begin):
            distinct.setdefault((span.get("traceId"), span.get("spanId")), span)
        self.spans = list(distinct.values())
        self.duplicates = len(records) - len(self.spans)
        self.id = text_of(self.spans[0], "traceId") if self.spans else None
        self._by_id = {_id(span): span for span in self.spans}
        parents = {one: text_of(span, "parentSpanId") for one, span in self._by_id.items()}
        self.missing = sorted({parent for parent in parents.values() if parent and parent not in self._by_id})
        self._children: dict[str, list[str]] = {one: [] for one in self._by_id}
        roots: list[str] = []
        for one, parent in parents.items():
            siblings = self._children.get(parent, roots) if parent and parent != one else roots
            siblings.append(one)
        self._order: list[tuple[str, int]] = []  # each span before its children, with its depth
        self._roots: list[str] = []
        reached: set[str] = set()
        for root in (*roots, *self._by_id):  # the latter: spans that no root leads to
            if root not in reached:
                self._roots.append(root)
                self._walk(root, reached)
        self.root = max(self._roots, key=self._likely_root, default=None)
        self.is_cut = any(depth > MAX_DEPTH for _, depth in self._order)

    def _walk(self, root: str, reached: set[str]) -> None:
        stack = [(root, 0)]
        while stack:
            one, depth = stack.pop()
            reached.add(one)
            self._order.append((one, depth))
            self._children[one] = [child for child in self._children[one] if child not in reached]
            stack += [(child, depth + 1) for child in self._children[one]]

    def _likely_root(self, one: str) -> tuple[bool, bool, bool, bool, float]:
        span = self._by_id[one]
        http = group_of(span, "http")
        has_http = any(http.get(key) is not None for key in ("method", "route", "path", "statusCode"))
        return (
            span.get("parentSpanId") is None,
            span.get("kind") == "server",
            has_http,
            span.get("requestId") is not None,
            number_of(span, "duration") or 0,
        )

    def tree(self) -> list[dict[str, Any]]:
        """Returns the forest; what is deeper than `MAX_DEPTH` is left out, and the trace is partial."""
        nodes: dict[str, dict[str, Any]] = {}
        for one, depth in self._order:
            span = self._by_id[one]
            nodes[one] = {
                "spanId": one,
                "parentSpanId": span.get("parentSpanId"),
                "children": [],
                "depth": depth,
                **{key: span.get(key) for key in ("service", "name", "kind")},
                "startTime": span.get("timestamp"),
                "endTime": span.get("endTimestamp"),
                "duration": span.get("duration"),
                "statusCode": group_of(span, "status").get("code"),
            }
        for one, depth in self._order:
            if depth < MAX_DEPTH:
                nodes[one]["children"] = [nodes[child] for child in self._children[one]]
        return [nodes[one] for one in self._roots]

    def critical_path(self) -> list[str]:
        """Returns the ids from the root on, at each span that child whose own time and that of its longest descendants is
        the greatest. Time in which a child runs is not its parent's own.
        """
        score: dict[str, float] = {}
        for one, _ in reversed(self._order):
            score[one] = self._own_ms(one) + max((score[child] for child in self._children[one]), default=0.0)
        path, here = [], self.root
        while here is not None:
            path.append(here)
            here = max(self._children[here], key=lambda child: score[child], default=None)
        return path

    def _own_ms(self, one: str) -> float:
        begin, end = _interval(self._by_id[one])
        covered, reached = 0.0, begin
        for first, last in sorted(_interval(self._by_id[child]) for child in self._children[one]):
            first, last = max(first, reached), min(last, end)
            if last > first:
                covered, reached = covered + last - first, last
        return max(0.0, end - begin - covered)

    def service_map(self) -> list[dict[str, Any]]:
        """Returns the calls between services, by caller and callee."""
        edges: dict[tuple[str, str], list[Record]] = {}
        for parent, children in self._children.items():
            caller = text_of(self._by_id[parent], "service")
            for child in children:
                callee = text_of(self._by_id[child], "service")
                if caller and callee and caller != callee:
                    edges.setdefault((caller, callee), []).append(self._by_id[child])
        return [
            {
                "from": caller,
                "to": callee,
                "count": len(calls),
                "errorCount": sum(map(is_error, calls)),
                "latency": _latency([ms for call in calls if (ms := number_of(call, "duration")) is not None]),
            }
            for (caller, callee), calls in sorted(edges.items())
        ]

    def errors(self) -> list[dict[str, Any]]:
        """Returns the spans that failed."""
        return [
            {
                "spanId": _id(span),
                "service": span.get("service"),
                "name": span.get("name"),
                "time": span.get("timestamp"),
                "type": group_of(span, "error").get("type"),
                "message": group_of(span, "error").get("message") or group_of(span, "status").get("message"),
            }
            for span in self.spans
            if is_error(span)
        ]

    def root_span(self) -> Record:
        """Returns the span of the root; an empty one without spans."""
        return {} if self.root is None else self._by_id[self.root]


def _latency(values: Sequence[float]) -> dict[str, Any]:
    return {
        "count": len(values),
        "sum": sum(values),
        "min": min(values, default=None),
        "max": max(values, default=None),
    }


def _begin(span: Record) -> tuple[str, float, str]:
    return text_of(span, "timestamp") or "", -(number_of(span, "duration") or -1), text_of(span, "name") or ""


def _interval(span: Record) -> tuple[float, float]:
    """Returns when a span began and ended, in milliseconds since 1970."""
    try:
        begin = int(span.get("startUnixNano") or "") / 1_000_000
    except (TypeError, ValueError):
        begin = float(instants.parse_ms(text_of(span, "timestamp") or "") or 0)
    return begin, begin + (number_of(span, "duration") or 0)


def is_error(span: Record) -> bool:
    """Returns whether a span failed."""
    return group_of(span, "status").get("code") == "error" or group_of(span, "error").get("isError") is True


def _id(span: Record) -> str:
    return text_of(span, "spanId") or ""


def text_of(record: Record, key: str) -> str | None:
    """Returns the text under a key; None for an empty one and for anything else."""
    value = record.get(key)
    return value if isinstance(value, str) and value else None


def number_of(record: Record, key: str) -> float | None:
    """Returns the number under a key; None for anything else."""
    value = record.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def group_of(record: Record, key: str) -> Record:
    """Returns the object under a key; an empty one for anything else."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}
