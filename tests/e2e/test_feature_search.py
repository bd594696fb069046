"""Events of lanes that real jobs on local Spark index, searched over HTTP wherever they are."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.e2e.test_indexing import eventually
from tests.support.emulated_cloud import dev_server
from tests.support.pipeline import NO_METRICS
from tests.unit.features.world import event, tx

OPTIONS = ("--seal-age", "1s", "--state-age", "1s", "--trim-age", "8s", "--index-age", "2s", "--sweep-every", "4s")
pytestmark = pytest.mark.full
USERS = "abcdefgh"
EVENTS = [(user, n) for n in range(5) for user in USERS]


def test_events_of_lanes_are_indexed_and_searched() -> None:
    with (
        dev_server(*OPTIONS, environment=NO_METRICS, runs_jobs=True) as server,
        httpx.Client(base_url=server.url, timeout=30) as http,
    ):

        def ask(path: str, **body: object) -> Any:
            answer = http.post(path, json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        def search(q: str, **more: object) -> Any:
            return ask("/search", event="Seen", q=q, **{"size": 100, "sort": ["n:asc"], **more})

        def found(q: str) -> list[tuple[str, int]]:
            return sorted((hit["data"]["user"], hit["data"]["n"]) for hit in search(q)["hits"])

        def is_indexed() -> bool:
            coverage = search("has:user")["coverage"]
            return not (coverage["scanned_tail_docs"] or coverage["scanned_segments"])

        ask("/register", nodes=[event("Seen", lanes=2, lane_key="user", search=True)])
        for user, n in EVENTS:
            ask("/push", event="Seen", data=tx(user, n / 2, n))
        wanted = {
            "user:c": [one for one in EVENTS if one[0] == "c"],
            "amount:>1 user:a*": [one for one in EVENTS if one[0] == "a" and one[1] > 2],
            "n:3 OR user:h": [one for one in EVENTS if one[1] == 3 or one[0] == "h"],
        }
        assert {q: found(q) for q in wanted} == {q: sorted(hits) for q, hits in wanted.items()}
        eventually(is_indexed, "a lane is not indexed")
        coverage = search("has:user")["coverage"]
        assert coverage["complete"] and coverage["indexed_segments"] >= 2 and coverage["index_families_used"]
        assert {hit["lane"] for hit in search("has:user")["hits"]} == {0, 1}
        assert {q: found(q) for q in wanted} == {q: sorted(hits) for q, hits in wanted.items()}

        ask("/push", event="Seen", data=tx("c", 9.0, 9))
        assert found("user:c") == [*sorted(wanted["user:c"]), ("c", 9)], "an index run, and the tail"
        pages, after = [], None
        while page := search("has:user", size=7, search_after=after):
            pages += [hit["data"]["n"] for hit in page["hits"]]
            if (after := page["next_search_after"]) is None:
                break
        assert pages == [*sorted(n for _, n in EVENTS), 9]
