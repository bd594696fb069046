"""`_index_status` and `_details` tell the truth about indexes, wherever the records are. See `stages.py`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.contract.client import Api, Stream, eventually, expect, given
from tests.conformance.contract.shop import SCHEMA, SEARCH
from tests.conformance.contract.stages import JOB_S, SEGMENT, Stage

ON_DISK = ("col", "fts", "agg", "exact")


def parts(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns everything that reports the progress of one index, with `covered` for what has two names."""
    runs = [found["routing_key_index"], found["routing_key_lexicon"], *found["exact_indexes"]]
    families = found["search_families"]
    return [
        *({**part, "covered": part["indexed_segment_count"]} for part in runs),
        *({**part, "covered": part["covered_segment_count"]} for part in families),
    ]


def test_counts_are_those_of_the_stage(stage: Stage) -> None:
    found, plan = stage.status(), stage.plan
    assert found["segments"]["uploaded_count"] == found["segments"]["total_count"] == plan.segments
    assert {family["family"] for family in found["search_families"]} >= {"col", "fts", "agg"}
    for part in parts(found):
        assert part["covered"] == plan.indexed, part
        assert part["fully_indexed_uploaded_segments"] is (plan.indexed == plan.segments), part
    for family in found["search_families"]:
        assert family["contiguous_covered_segment_count"] == plan.indexed, family
        assert family["stale_segment_count"] == 0, family
    for index in found["exact_indexes"]:
        assert index["stale_configuration"] is False, index
    assert found["bundled_companions"]["fully_indexed_uploaded_segments"] is (plan.indexed == plan.segments)


def test_lag_is_what_is_not_indexed(stage: Stage) -> None:
    plan = stage.plan
    for part in parts(stage.status()):
        assert part["lag_segments"] == plan.segments - plan.indexed, part
        assert part["lag_ms"] is None or part["lag_ms"].isdigit(), part
        if part["lag_segments"]:
            assert part["lag_ms"] is not None and int(part["lag_ms"]) > 0, part


def test_bytes_and_objects_are_there_when_there_are_indexes(stage: Stage) -> None:
    found, is_indexed = stage.status(), bool(stage.plan.indexed)
    lexicon, companions = found["routing_key_lexicon"], found["bundled_companions"]
    assert (lexicon["active_run_count"] > 0) is is_indexed
    assert (lexicon["updated_at"] is not None) is is_indexed
    families = [family for family in found["search_families"] if family["family"] in ON_DISK]
    for part in (lexicon, companions, *families):
        assert (int(part["bytes_at_rest"]) > 0) is is_indexed, part
        assert (part["object_count"] > 0) is is_indexed, part


def test_details_split_the_bytes_by_family(stage: Stage) -> None:
    found = expect(stage.stream.details(), 200).json()
    families = {family["family"]: family["bytes_at_rest"] for family in found["index_status"]["search_families"]}
    split, kept = found["storage"]["companion_families"], found["storage"]["object_storage"]
    for name in ("col", "fts", "agg"):
        assert split[f"{name}_bytes"] == families[name]
    assert (int(kept["indexes_bytes"]) > 0) is bool(stage.plan.indexed)
    assert int(kept["indexes_bytes"]) >= sum(int(split[f"{name}_bytes"]) for name in ("col", "fts", "agg"))
    others = int(kept["segments_bytes"]) + int(kept["indexes_bytes"]) + int(kept["manifest_and_meta_bytes"])
    assert int(kept["total_bytes"]) >= others


@pytest.fixture(scope="session")
def reconfigured(roomy: Api) -> Stream:
    """Returns a stream of two segments, indexed."""
    stream = roomy.with_schema(schema=SCHEMA, search=SEARCH)
    for _ in range(2):
        append_segment(stream)
    eventually(lambda: covered(stream), lambda counts: counts == {2}, within_s=JOB_S)
    return stream


def append_segment(stream: Stream) -> None:
    """Appends as much as a segment holds, and waits until it is one: a server may seal by age."""
    before = segments(stream)
    given(stream.append([{"id": f"r{n}", "code": "Ab"} for n in range(SEGMENT)]))
    eventually(lambda: segments(stream), lambda count: count == before + 1, within_s=JOB_S)


def segments(stream: Stream) -> int:
    """Returns how many segments are published."""
    count: int = given(stream.index_status()).json()["segments"]["uploaded_count"]
    return count


def covered(stream: Stream) -> set[int]:
    """Returns how many segments the families cover: one number if all cover as many."""
    found = given(stream.index_status()).json()
    return {family["covered_segment_count"] for family in found["search_families"]}


def stale(stream: Stream) -> dict[str, bool]:
    """Returns which exact indexes are stale."""
    found = expect(stream.index_status(), 200).json()
    return {index["name"]: index["stale_configuration"] for index in found["exact_indexes"]}


def test_a_changed_field_is_stale_until_it_is_built_again(reconfigured: Stream) -> None:
    stream = reconfigured
    assert not any(stale(stream).values())
    assert expect(stream.search(q="code:ab"), 200).json()["hits"] == []
    code = {**SEARCH["fields"]["code"], "normalizer": "lowercase_v1"}
    given(stream.define(search={**SEARCH, "fields": {**SEARCH["fields"], "code": code}}))
    assert stale(stream)["code"] is True
    assert len(expect(stream.search(q="code:ab"), 200).json()["hits"]) == 50, "what is stale is not asked"
    append_segment(stream)
    eventually(lambda: any(stale(stream).values()), lambda is_stale: not is_stale, within_s=JOB_S)
    eventually(lambda: covered(stream), lambda counts: counts == {3}, within_s=JOB_S)
    # in an order that no run has: else the newest runs may be enough for a page, and the total a lower bound
    found = expect(stream.search(q="code:ab", size=1, sort=["code:asc"]), 200).json()
    assert found["total"] == {"value": 3 * SEGMENT, "relation": "eq"}
    assert found["coverage"]["indexed_segments"] == 3
