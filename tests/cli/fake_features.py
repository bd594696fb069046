"""A server of feature tables, small enough to be read: it keeps the exact text of events, and can be told to fail."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from tests.cli.fake_topics import Fault

_CALL = re.compile(
    r"(?:/features/([^/]+))?/(register|registry|get|search|push/(\w+)/batch|snapshot|training-set|backfill|jobs/.+)"
)


PLAN = {
    "as_of": "5;Txn=42;Txn.1=7",
    "first_offsets": {"Txn": 0, "Txn.1": 3},
    "segments": 2,
    "events": 46,
    "bytes": 5_000,
    "estimate": {"seconds": 90, "usd": 0.0089},
}
ASKED = {"job_id": "1700000000000-0123456789ab", **PLAN}


@dataclass
class FakeFeatures:
    """The registries, events and rows of namespaces. `faults` are taken one for each request but those of the registry."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[bytes] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    """What is shown of the one job, one after the other; the last one again and again."""
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    diff: dict[str, Any] = field(default_factory=lambda: {"additive": [], "destructive": [], "already_present": []})
    requests: list[httpx.Request] = field(default_factory=list)
    faults: list[Fault | None] = field(default_factory=list)
    version: int = 0
    hides_registry: bool = False

    @staticmethod
    def owns(request: httpx.Request) -> bool:
        return _CALL.fullmatch(request.url.path) is not None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        found = _CALL.fullmatch(request.url.path)
        assert found
        namespace, call, event = found.groups()
        known = self.nodes.setdefault(namespace or "default", {})
        if call == "registry":
            if self.hides_registry:
                return httpx.Response(403, json={"error": {"code": "forbidden", "message": "no read"}})
            tables = {name: {"generation": "1"} for name, node in known.items() if node.get("output_kind") == "table"}
            nodes = list(known.values())
            return httpx.Response(200, json={"version": self.version, "nodes": nodes, "tables": tables})
        if call.startswith("jobs/"):
            return httpx.Response(200, json=self.jobs.pop(0) if len(self.jobs) > 1 else self.jobs[0])
        fault = self.faults.pop(0) if self.faults else None

        def serve() -> httpx.Response:
            if call == "register":
                return self.register(known, request)
            if call in ("snapshot", "training-set", "backfill"):
                return httpx.Response(200, json=PLAN if json.loads(request.content).get("dry_run") else ASKED)
            if call == "search":
                return self.search(request)
            return self.get(request) if call == "get" else self.push(event, request)

        return fault(request, serve) if fault else serve()

    def register(self, known: dict[str, Any], request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if body.get("dry_run"):
            return httpx.Response(200, json={"diff": self.diff, "would_apply": False})
        if self.diff["destructive"] and not body.get("force"):
            error = {"code": "force_required", "reason": "it drops state", "diff": self.diff}
            return httpx.Response(409, json={"error": error, "registry_version": self.version})
        known.update({node["name"]: node for node in body["nodes"]})
        self.version += 1
        names = [node["name"] for node in body["nodes"]]
        return httpx.Response(200, json={"registry_version": self.version, "added": names, "already_present": []})

    def push(self, event: str, request: httpx.Request) -> httpx.Response:
        if not any(event in known for known in self.nodes.values()):
            return httpx.Response(404, json={"error": {"code": "event_not_found", "message": f"no event {event}"}})
        texts = [bytes(text) for text in msgspec.json.decode(request.content, type=list[msgspec.Raw])]
        self.events += texts
        self.batches.append(len(texts))
        return httpx.Response(200, json={"ack_lsn": 100 + len(self.events), "registry_version": self.version})

    def search(self, request: httpx.Request) -> httpx.Response:
        """Answers with the events that were pushed, whatever the query; the last one is in lane 2."""
        body = json.loads(request.content)
        first, size = body.get("search_after", [0])[0], body["size"]
        page = self.events[first : first + size]
        hits = ",".join(
            f'{{"lane":{2 * (number == len(self.events) - 1)},"offset":{number},"arrived_ms":5,"data":{data.decode()}}}'
            for number, data in enumerate(page, first)
        )
        coverage = {"complete": False, "possible_missing_events_upper_bound": 3}
        rest = {
            "event": body["event"],
            "timed_out": False,
            "coverage": coverage,
            "total": {"value": len(self.events), "relation": "eq"},
            "next_search_after": [first + size] if len(page) == size else None,
        }
        return httpx.Response(200, content=f'{json.dumps(rest)[:-1]},"hits":[{hits}]}}'.encode())

    def get(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if body["table"] not in self.rows:
            return httpx.Response(404, json={"error": {"code": "unknown_table", "message": "no such table"}})
        row = self.rows[body["table"]] if body["key"] != ["nobody"] else {}
        return httpx.Response(200, json={name: row[name] for name in row if name in body.get("features", row)})
