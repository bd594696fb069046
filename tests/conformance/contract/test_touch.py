"""`/touch/*`: waiting for changes that concern a query, on whatever process they are appended."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import xxhash

from tests.conformance.contract.client import JSON, Api, Stream, expect, refused
from tests.conformance.contract.test_long_poll import soon

pytestmark = pytest.mark.sensitive("a touch must reach a wait in any process, and one that remembers nothing")

FIELDS = [{"name": "tenant", "encoding": "string"}, {"name": "done", "encoding": "bool"}]
TEMPLATE = {"entity": "todos", "fields": FIELDS}
CURSOR = re.compile(r"[0-9a-f]{16}:\d+")


def hashed(*parts: bytes) -> str:
    """Parts joined by NUL, as 16 hex digits of XXH3-64."""
    return xxhash.xxh3_64_hexdigest(b"\0".join(parts))


def table_key(entity: str) -> str:
    return hashed(b"tbl", entity.encode())


TEMPLATE_ID = hashed(b"tpl", b"todos", b"done", b"tenant")  # fields in the order of their names


def watch_key(done: str, tenant: str, kind: bytes = b"key") -> str:
    return hashed(kind, bytes.fromhex(TEMPLATE_ID), done.encode(), tenant.encode())


def change(operation: str, value: Any = None, old: Any = None, entity: str = "todos") -> dict[str, Any]:
    record = {"type": entity, "key": "1", "headers": {"operation": operation}}
    if value is not None:
        record["value"] = value
    if old is not None:
        record["old_value"] = old
    return record


def todo(tenant: str, done: bool = False, title: str = "x") -> dict[str, Any]:
    return {"tenant": tenant, "done": done, "title": title}


@pytest.fixture
def live(api: Api) -> Stream:
    stream = api.stream()
    expect(stream.set_profile("state-protocol", touch={"enabled": True}), 200)
    return stream


def meta(stream: Stream) -> dict[str, Any]:
    found: dict[str, Any] = expect(stream.touch_meta(settle="flush", timeoutMs="3000"), 200).json()
    return found


def wait(stream: Stream, cursor: str, *keys: str, **more: Any) -> dict[str, Any]:
    """Waits for changes, at most 300 ms; returns the answer."""
    body = {"cursor": cursor, "keys": list(keys), "timeoutMs": 300, **more}
    found: dict[str, Any] = expect(stream.touch("wait", body), 200).json()
    return found


def activate(stream: Stream) -> None:
    """Templates work from a moment later on, never backwards."""
    expect(stream.touch("templates/activate", {"templates": [TEMPLATE]}), 200)


@pytest.mark.parametrize("options", [{}, {"touch": {"enabled": False}}])
def test_without_touch_the_routes_are_not_there(stream: Stream, options: dict[str, Any]) -> None:
    expect(stream.set_profile("state-protocol", **options), 200)
    refused(stream.touch_meta(), 404)
    refused(stream.touch("wait", {"cursor": "now", "keys": [table_key("todos")], "timeoutMs": 0}), 404)
    refused(stream.touch("templates/activate", {"templates": [TEMPLATE]}), 404)


def test_other_profiles_have_no_touch_routes(stream: Stream, api: Api) -> None:
    refused(stream.touch_meta(), 404)
    refused(api.unused().touch_meta(), 404)


def test_meta_says_where_to_begin(live: Stream) -> None:
    found = meta(live)
    assert CURSOR.fullmatch(found["cursor"])
    assert found["cursor"] == f"{found['epoch']}:{found['generation']}"
    assert found["settled"] is True
    assert found["touchMode"] in ("idle", "fine", "restricted", "coarseOnly")
    assert found["lagSourceOffsets"] == 0
    assert found["activeTemplates"] == 0
    assert {"bucketMs", "coalesceMs", "pendingKeys", "overflowBuckets", "bucketMaxSourceOffsetSeq"} <= set(found)
    assert {"activeWaiters", "hotFineKeys", "hotTemplates", "fineWaitersActive", "coarseWaitersActive"} <= set(found)


def test_meta_counts_templates_and_moves_with_changes(live: Stream) -> None:
    before = meta(live)
    activate(live)
    expect(live.append([change("insert", todo("a"))]), 204)
    after = meta(live)
    assert after["activeTemplates"] == 1
    assert after["epoch"] == before["epoch"]
    assert after["generation"] > before["generation"]


@pytest.mark.parametrize("parameters", [{"settle": "later"}, {"settle": "flush", "timeoutMs": "soon"}])
def test_malformed_parameters_of_meta_are_refused(live: Stream, parameters: dict[str, str]) -> None:
    refused(live.touch_meta(**parameters), 400)


def test_a_change_touches_its_table(live: Stream) -> None:
    cursor = meta(live)["cursor"]
    expect(live.append([change("insert", todo("a"))]), 204)
    answer = wait(live, cursor, table_key("todos"), interestMode="coarse")
    assert answer["touched"] is True
    assert answer["effectiveWaitKind"] == "tableKey"
    assert CURSOR.fullmatch(answer["cursor"])
    assert wait(live, answer["cursor"], table_key("todos"))["touched"] is False


def test_a_change_does_not_touch_other_tables(live: Stream) -> None:
    cursor = meta(live)["cursor"]
    expect(live.append([change("insert", todo("a"))]), 204)
    answer = wait(live, cursor, table_key("users"))
    assert answer["touched"] is False
    assert CURSOR.fullmatch(answer["cursor"])


def test_control_records_touch_nothing(live: Stream) -> None:
    cursor = meta(live)["cursor"]
    expect(live.append([{"headers": {"control": "reset"}}]), 204)
    assert wait(live, cursor, table_key("todos"))["touched"] is False


def test_a_change_touches_the_queries_of_its_old_and_its_new_values(live: Stream) -> None:
    activate(live)
    cursor = meta(live)["cursor"]
    expect(live.append([change("update", todo("b"), todo("a"))]), 204)
    for tenant, touched in (("a", True), ("b", True), ("c", False)):
        key = watch_key("0", tenant)
        assert wait(live, cursor, key, exact=True)["touched"] is touched, tenant
        assert wait(live, cursor, key, templateIdsUsed=[TEMPLATE_ID])["touched"] is touched, tenant


def test_membership_is_touched_only_when_it_changes(live: Stream) -> None:
    activate(live)
    cursor = meta(live)["cursor"]
    expect(live.append([change("update", todo("a", title="new"), todo("a", title="old"))]), 204)
    assert wait(live, cursor, watch_key("0", "a", b"mem"), exact=True)["touched"] is False
    assert wait(live, cursor, watch_key("0", "a"), exact=True)["touched"] is True
    title = hashed(b"fld", bytes.fromhex(TEMPLATE_ID), b"title", b"0", b"a")
    assert wait(live, cursor, title, exact=True)["touched"] is True


def test_keys_may_be_given_as_numbers(live: Stream) -> None:
    cursor = meta(live)["cursor"]
    expect(live.append([change("insert", todo("a"))]), 204)
    number = int(table_key("todos")[8:], 16)
    body = {"cursor": cursor, "keyIds": [number], "timeoutMs": 300}
    assert expect(live.touch("wait", body), 200).json()["touched"] is True


def test_a_template_is_activated(live: Stream) -> None:
    body = {"templates": [TEMPLATE], "inactivityTtlMs": 60000}
    answer = expect(live.touch("templates/activate", body), 200).json()
    assert [template["templateId"] for template in answer["activated"]] == [TEMPLATE_ID]
    assert answer["activated"][0]["state"] == "active"
    assert CURSOR.fullmatch(answer["activated"][0]["activeFromTouchOffset"])
    assert answer["denied"] == []
    assert answer["limits"] == {"maxActiveTemplatesPerStream": 2048, "maxActiveTemplatesPerEntity": 256}
    again = expect(live.touch("templates/activate", body), 200).json()
    assert [template["templateId"] for template in again["activated"]] == [TEMPLATE_ID]


def test_a_wait_may_declare_its_templates(live: Stream) -> None:
    first = wait(live, "now", watch_key("0", "a"), declareTemplates=[TEMPLATE], timeoutMs=0)
    expect(live.append([change("insert", todo("a"))]), 204)
    assert wait(live, first["cursor"], watch_key("0", "a"), templateIdsUsed=[TEMPLATE_ID])["touched"] is True


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        {},
        {"templates": []},
        {"templates": [TEMPLATE] * 257},
        {"templates": [{"entity": "", "fields": FIELDS}]},
        {"templates": [{"entity": "t", "fields": []}]},
        {"templates": [{"entity": "t", "fields": [{"name": n, "encoding": "string"} for n in "abcd"]}]},
        {"templates": [{"entity": "t", "fields": [{"name": "", "encoding": "string"}]}]},
        {"templates": [TEMPLATE], "inactivityTtlMs": -1},
    ],
)
def test_a_malformed_activation_is_refused(live: Stream, body: object) -> None:
    refused(live.touch("templates/activate", body), 400)


@pytest.mark.parametrize(
    "change_",
    [
        {"cursor": None},
        {"cursor": ""},
        {"cursor": "yesterday"},
        {"keys": []},
        {"keys": [""]},
        {"keys": "todos"},
        {"keys": [f"{n:016x}" for n in range(1025)]},
        {"keys": None, "keyIds": [-1]},
        {"keys": None, "keyIds": [2**32]},
        {"timeoutMs": "soon"},
        {"interestMode": "vague"},
        {"exact": "yes"},
        {"exact": True, "interestMode": "coarse"},
        {"exact": True, "keys": ["not sixteen hex digits"]},
        {"exact": True, "keys": [f"{n:016x}" for n in range(17)]},
        {"templateIdsUsed": [7]},
        {"declareTemplates": [{"entity": ""}]},
    ],
)
def test_a_malformed_wait_is_refused(live: Stream, change_: dict[str, Any]) -> None:
    body = {"cursor": "now", "keys": [table_key("todos")], "timeoutMs": 0, **change_}
    refused(live.touch("wait", {name: value for name, value in body.items() if value is not None}), 400)


def test_a_wait_that_is_not_json_is_refused(live: Stream) -> None:
    refused(live.at("POST", "/touch/wait", JSON, b"{"), 400)


def test_a_cursor_of_another_epoch_is_stale(live: Stream) -> None:
    answer = wait(live, "ffffffffffffffff:1", table_key("todos"))
    assert answer["stale"] is True
    assert answer["error"]["code"] == "stale"
    assert answer["cursor"] == f"{answer['epoch']}:{answer['generation']}" == meta(live)["cursor"]
    assert "touched" not in answer


def test_a_wait_ends_at_its_timeout(live: Stream) -> None:
    began = time.monotonic()
    answer = wait(live, "now", table_key("todos"), timeoutMs=400)
    assert answer["touched"] is False
    assert 0.35 < time.monotonic() - began < 2


def test_a_wait_begins_now(live: Stream) -> None:
    expect(live.append([change("insert", todo("a"))]), 204)
    assert wait(live, "now", table_key("todos"))["touched"] is False
    with soon(live.append, [change("insert", todo("a"))], after_s=0.2):
        assert wait(live, "now", table_key("todos"), timeoutMs=4000)["touched"] is True


def test_an_append_on_another_process_wakes_the_wait_within_half_a_second(live: Stream) -> None:
    """Each request goes to the next process, where there are several."""

    def waited(cursor: str) -> tuple[bool, float]:
        body = {"cursor": cursor, "keys": [table_key("todos")], "timeoutMs": 4000}
        answer = expect(live.touch("wait", body), 200).json()
        return answer["touched"], time.monotonic()

    delays: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        for _ in range(6):
            waiting = pool.submit(waited, meta(live)["cursor"])
            time.sleep(0.3)  # the wait has begun by now, perhaps in another process
            expect(live.append([change("insert", todo("a"))]), 204)
            appended = time.monotonic()
            touched, answered = waiting.result()
            assert touched is True
            delays.append(answered - appended)
    assert sorted(delays)[3] < 0.5, delays


def test_templates_do_not_live_in_one_process_only(live: Stream) -> None:
    activate(live)
    counts = [expect(live.touch_meta(), 200).json()["activeTemplates"] for _ in range(6)]
    assert counts == [1] * 6
