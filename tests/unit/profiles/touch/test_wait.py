"""Requests of waiters: what they may say, what they wait for, what wakes them, what they are told."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.streams.profiles.touch import keys
from headrace.streams.profiles.touch.activate import answer, parse_activate
from headrace.streams.profiles.touch.config import TouchConfig, parse_config
from headrace.streams.profiles.touch.cursor import TouchCursor, parse_cursor
from headrace.streams.profiles.touch.meta import Counters, Place, answer_meta, answer_stale, answer_wait, parse_meta
from headrace.streams.profiles.touch.templates import Activation, Declaration, Template, by_entity
from headrace.streams.profiles.touch.wait import Touched, WaitRequest, interest_of, parse_wait, wakes
from tests.unit.profiles.json_values import VALUES, objects

CONFIG = parse_config({"enabled": True})
TABLE = keys.table_key("todos")
TEMPLATE = Template(keys.template_id("todos", ("tenant",)), "todos", ("tenant",), ("string",), 0, 0, 0)
WATCH = keys.watch_key(TEMPLATE.id, ("a",))
INSERT = {"type": "todos", "key": "1", "value": {"tenant": "a"}, "headers": {"operation": "insert"}}
PLACE = Place(TouchCursor(3, 12), 1_700_000_000_000)


def wait(**fields: Any) -> WaitRequest:
    return parse_wait({"cursor": "now", "keys": [keys.as_hex(TABLE)], **fields}, CONFIG)


def woken(request: WaitRequest, record: Any = INSERT, offset: int = 0, config: TouchConfig = CONFIG) -> bool:
    return wakes(interest_of(request, [TEMPLATE]), record, offset, by_entity([TEMPLATE]), config)


def test_a_cursor_is_an_incarnation_and_an_offset() -> None:
    assert str(TouchCursor(3, 12)) == "0000000000000003:12"
    assert parse_cursor(" 00000000000000AB:12 ") == TouchCursor(171, 12)
    assert parse_cursor("now") is None
    for wrong in ("", "1:2", "0000000000000003", "0000000000000003:", "0000000000000003:-1", "000000000000000g:1"):
        with pytest.raises(InvalidRequest, match=r"wait\.cursor"):
            parse_cursor(wrong)


def test_defaults_of_a_wait() -> None:
    assert wait() == WaitRequest(
        cursor=None,
        timeout_ms=30_000,
        keys=frozenset({TABLE}),
        key_ids=frozenset(),
        coarse=False,
        template_ids=frozenset(),
        declared=(),
        ttl_ms=3_600_000,
    )
    assert wait(timeoutMs=10**9).timeout_ms == 120_000
    assert wait(timeoutMs=-5).timeout_ms == 0
    assert wait(keyIds=None, exact=None, templateIdsUsed=None, later="field") == wait()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"keys": []}, "wait requires keys or keyIds"),
        ({"keys": [" "]}, "wait.keys must be"),
        ({"keys": "a"}, "wait.keys must be"),
        ({"keys": [str(number) for number in range(1025)]}, "wait.keys too large"),
        ({"keyIds": [1.5]}, "wait.keyIds must be"),
        ({"keyIds": [2**32]}, "wait.keyIds must be"),
        ({"keyIds": [True]}, "wait.keyIds must be"),
        ({"keyIds": list(range(1025))}, "wait.keyIds too large"),
        ({"cursor": None}, "wait.cursor must be a non-empty string"),
        ({"cursor": 5}, "wait.cursor must be a non-empty string"),
        ({"timeoutMs": "5"}, "wait.timeoutMs must be a number"),
        ({"interestMode": "exact"}, "wait.interestMode"),
        ({"exact": 1}, "wait.exact must be a boolean"),
        ({"exact": True, "interestMode": "coarse"}, "wait.exact requires fine"),
        ({"exact": True, "keys": ["word"]}, "wait.exact requires 1 to 16"),
        ({"exact": True, "keys": [keys.as_hex(number) for number in range(17)]}, "wait.exact requires 1 to 16"),
        ({"exact": True, "keys": [], "keyIds": [1]}, "wait.exact requires 1 to 16"),
        ({"templateIdsUsed": ["word"]}, "wait.templateIdsUsed"),
        ({"templateIdsUsed": "0" * 16}, "wait.templateIdsUsed"),
        ({"declareTemplates": {}}, "wait.declareTemplates must be a non-empty array"),
        ({"declareTemplates": [{"entity": "e", "fields": []}]}, "wait.declareTemplates contains invalid"),
        ({"inactivityTtlMs": -1}, "wait.inactivityTtlMs"),
    ],
    ids=str,
)
def test_a_wrong_wait_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        wait(**fields)
    assert says in str(refused.value)


def test_a_wait_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="wait body must be an object"):
        parse_wait([], CONFIG)


def test_full_keys_are_matched_exactly_and_key_ids_by_their_half() -> None:
    assert woken(wait())
    assert not woken(wait(keys=[keys.as_hex(TABLE ^ 1 << 40)]))
    assert woken(wait(keys=[], keyIds=[TABLE & keys.KEY_ID_MASK]))
    assert not woken(wait(keys=[], keyIds=[TABLE + 1 & keys.KEY_ID_MASK]))
    assert woken(wait(keys=["word"], keyIds=[WATCH & keys.KEY_ID_MASK]))
    assert not woken(wait(keys=["word"]))


def test_a_fine_wait_needs_the_template_and_a_later_record() -> None:
    request = wait(keys=[keys.as_hex(WATCH)], exact=True)
    assert woken(request)
    assert not wakes(interest_of(request, []), INSERT, 0, {}, CONFIG)
    later = Template(TEMPLATE.id, "todos", ("tenant",), ("string",), 5, 0, 0)
    assert not wakes(interest_of(request, [later]), INSERT, 4, by_entity([later]), CONFIG)
    assert wakes(interest_of(request, [later]), INSERT, 5, by_entity([later]), CONFIG)


def test_a_coarse_wait_is_for_the_tables_of_its_templates() -> None:
    other = keys.as_hex(keys.watch_key(TEMPLATE.id, ("b",)))
    request = wait(keys=[other], interestMode="coarse", templateIdsUsed=[keys.as_hex(TEMPLATE.id).upper()])
    assert interest_of(request, [TEMPLATE]).kind == "tableKey"
    assert woken(request)
    unknown = interest_of(request, [])
    assert unknown.kind == "fineKey" and unknown.keys == request.keys
    plain = interest_of(wait(interestMode="coarse"), [TEMPLATE])
    assert plain.kind == "tableKey" and plain.keys == {TABLE}


def test_records_that_are_no_changes_wake_nobody() -> None:
    for record in ({"headers": {"control": "reset"}}, 5, None, {"type": "todos"}):
        assert not woken(wait(), record)


def test_a_record_that_can_not_be_trusted_wakes_everybody() -> None:
    strict_config = parse_config({"enabled": True, "onMissingBefore": "error"})
    update = {**INSERT, "headers": {"operation": "update"}}
    request = wait(keys=["0000000000000000"])
    assert woken(request, update, config=strict_config)
    assert not woken(request, update)
    assert interest_of(request, []).woken_by(Touched(frozenset(), everything=True))


@given(
    VALUES
    | st.builds(
        lambda fields, cursor: {"keys": ["a"], **fields, "cursor": cursor},
        objects("keys", "keyIds", "timeoutMs", "exact", "interestMode", "templateIdsUsed", "declareTemplates"),
        VALUES | st.just("now"),
    )
)
def test_whatever_comes_it_is_read_or_refused(body: Any) -> None:
    for parse in (parse_wait, parse_activate):
        with contextlib.suppress(InvalidRequest):
            parse(body, CONFIG)


def test_activation_is_read_and_answered() -> None:
    body = {"templates": [{"entity": " todos ", "fields": [{"name": " tenant ", "encoding": "string"}]}]}
    request = parse_activate(body, CONFIG)
    assert request.templates == (Declaration("todos", (("tenant", "string"),)),)
    assert request.ttl_ms == 3_600_000
    assert parse_activate({**body, "inactivityTtlMs": 5.5}, CONFIG).ttl_ms == 5
    outcomes = [Activation(TEMPLATE.id), Activation(0, "invalid"), Activation(1, "rate_limited")]
    assert answer(outcomes, TouchCursor(3, 12), CONFIG.limits) == {
        "activated": [
            {
                "templateId": keys.as_hex(TEMPLATE.id),
                "state": "active",
                "activeFromTouchOffset": "0000000000000003:12",
            }
        ],
        "denied": [
            {"templateId": "0000000000000000", "reason": "invalid"},
            {"templateId": "0000000000000001", "reason": "rate_limited"},
        ],
        "limits": {"maxActiveTemplatesPerStream": 2048, "maxActiveTemplatesPerEntity": 256},
    }


@pytest.mark.parametrize(
    "body",
    [
        5,
        {},
        {"templates": []},
        {"templates": [5]},
        {"templates": [{"entity": " ", "fields": [{"name": "a"}]}]},
        {"templates": [{"entity": "e", "fields": [{"name": ""}]}]},
        {"templates": [{"entity": "e", "fields": [{"name": "a"}] * 4}]},
        {"templates": [{"entity": "e", "fields": [{"name": "a"}]}] * 257},
        {"templates": [{"entity": "e", "fields": [{"name": "a"}]}], "inactivityTtlMs": "1h"},
    ],
    ids=lambda body: str(body)[:60],
)
def test_a_wrong_activation_is_refused(body: Any) -> None:
    with pytest.raises(InvalidRequest):
        parse_activate(body, CONFIG)


def test_answers_of_a_wait() -> None:
    interest = interest_of(wait(), [])
    place = {
        "effectiveWaitKind": "fineKey",
        "bucketMaxSourceOffsetSeq": "11",
        "flushAtMs": 1_700_000_000_000,
        "bucketStartMs": 1_700_000_000_000,
    }
    assert answer_wait(interest, PLACE, was_touched=True) == {
        "touched": True,
        "cursor": "0000000000000003:12",
        **place,
    }
    assert answer_wait(interest, PLACE, was_touched=False)["touched"] is False
    stale = answer_stale(interest, PLACE)
    error = {"code": "stale", "message": "cursor epoch mismatch; rerun/re-subscribe and start from cursor"}
    assert stale == {
        "stale": True,
        "cursor": "0000000000000003:12",
        "epoch": "0000000000000003",
        "generation": 12,
        **place,
        "error": error,
    }


def test_an_empty_log_has_flushed_nothing() -> None:
    assert Place(TouchCursor(0, 0)).fields == {"bucketMaxSourceOffsetSeq": "-1", "flushAtMs": 0, "bucketStartMs": 0}


def test_the_query_of_meta() -> None:
    assert parse_meta(None, None) == 30_000
    assert parse_meta("flush", " 500.7 ") == 500
    assert parse_meta("flush", "999999") == 120_000
    for settle, timeout in (("later", None), (None, "soon")):
        with pytest.raises(InvalidRequest, match=r"meta\."):
            parse_meta(settle, timeout)


# In the order in which a Prisma Streams server (0.1.11) answers them.
META_FIELDS = """
    mode cursor epoch generation bucketMs coalesceMs filterSize k pendingKeys overflowBuckets activeWaiters
    bucketMaxSourceOffsetSeq lastFlushAtMs flushIntervalMsMaxLast10s flushIntervalMsP95Last10s settled coarseIntervalMs
    touchCoalesceWindowMs activeTemplates lagSourceOffsets touchMode walScannedThrough hotFineKeys hotTemplates
    hotFineKeysActive hotFineKeysGrace hotTemplatesActive hotTemplatesGrace fineWaitersActive coarseWaitersActive
    broadFineWaitersActive hotKeyFilteringEnabled hotTemplateFilteringEnabled scanRowsTotal scanBatchesTotal
    scannedButEmitted0BatchesTotal processedThroughDeltaTotal touchesEmittedTotal touchesTableTotal
    touchesTemplateTotal fineTouchesDroppedDueToBudgetTotal fineTouchesSkippedColdTemplateTotal
    fineTouchesSkippedColdKeyTotal fineTouchesSkippedTemplateBucketTotal waitTouchedTotal waitTimeoutTotal
    waitStaleTotal journalFlushesTotal journalNotifyWakeupsTotal journalNotifyWakeMsTotal journalNotifyWakeMsMax
    journalTimeoutsFiredTotal journalTimeoutSweepMsTotal
"""


def test_meta_has_every_field() -> None:
    counters = Counters(fine_waiters=2, coarse_waiters=1, waits_touched=7, records_scanned=9)
    meta = answer_meta(CONFIG, PLACE, next_offset="CURSOR", active_templates=4, counters=counters)
    assert list(meta) == META_FIELDS.split()
    assert (meta["cursor"], meta["settled"], meta["touchMode"]) == ("0000000000000003:12", True, "fine")
    assert (meta["activeTemplates"], meta["activeWaiters"], meta["lagSourceOffsets"]) == (4, 3, 0)
    assert (meta["waitTouchedTotal"], meta["scanRowsTotal"], meta["walScannedThrough"]) == (7, 9, "CURSOR")
    idle = answer_meta(CONFIG, PLACE, next_offset="", active_templates=0, counters=Counters())
    assert idle["touchMode"] == "idle"
