"""The counts that `headrace cost` estimates with are what is measured now, and the page shows what it estimates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.tables.catalog import row_item
from headrace.tables.unborn import announced
from operators.cost import counts
from operators.cost.charges import Estimate
from operators.cost.prices import standard
from operators.cost.workload import Workload
from tests.cost import measure, page
from tests.cost.metered import size_of, write_units

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
PARTITION_UNITS = 1000  # a second (DynamoDB Developer Guide, "Best practices for designing and using partition keys")
REMEASURE = "`uv run python -m tests.cost` measures again and writes file and page"


def test_the_counts_are_what_is_measured_now() -> None:
    committed = json.loads(counts.FILE.read_bytes())
    measured = json.loads(json.dumps(measure.counts()))
    assert measured.keys() == committed.keys()
    for name, found in measured.items():
        assert found == committed[name], f"{name}: {REMEASURE}"


def test_the_page_has_the_tables_of_the_command() -> None:
    text = page.PAGE.read_text()
    assert page.names(text) == page.tables().keys()
    assert page.rendered(text) == text, REMEASURE


def test_an_append_is_one_write_and_at_most_one_put() -> None:
    for one in counts.counted().appends:
        calls = {name: one.spent[name] for name in one.spent if name not in ("write_units", "put_bytes")}
        assert calls == {"PutItem": 1, **({"put": 1} if one.is_spilled else {})}
        assert one.spent["write_units"] == write_units(one.item_bytes)


@pytest.mark.parametrize("one", counts.counted().appends, ids=lambda one: f"{one.batch}x{one.record_bytes}")
def test_the_model_writes_the_units_that_were_counted(one: counts.Append) -> None:
    if one.payload_bytes in (10_000, 50_000) and one.record_bytes != 500:
        pytest.skip("the same payload was measured with records of another size, which compress otherwise")
    work = Workload(appends=1, record_bytes=one.record_bytes, batch=one.batch)
    estimated = Estimate(work, counts.counted(), standard())
    assert estimated.is_spilled == one.is_spilled
    assert estimated.item_units == one.spent["write_units"]


def test_the_size_of_an_item_follows_the_documented_rules() -> None:
    item = {"id": {"S": "é"}, "n": {"N": "1700000000000"}, "b": {"B": b"\x00" * 10}, "t": {"BOOL": True}}
    assert size_of(item) == (2 + 2) + (1 + 1 + 7) + (1 + 10) + (1 + 1)
    assert [write_units(size) for size in (0, 1, 1024, 1025)] == [1, 1, 1, 2]


def test_an_announcement_is_written_and_removed_for_five_units() -> None:
    """Twice in the table, the second time within a transaction, and twice in the index of the rows that can expire."""
    item = row_item(announced("f" * 32, 2**41))
    assert write_units(size_of(item)) == 1 and "living_in" not in item
    keys = {name: item[name] for name in ("bucket", "name", "expiry_shard", "expires_at_ms")}
    in_table, in_index = write_units(size_of(item)), write_units(size_of(keys))
    assert (in_table + in_index) + (2 * in_table + in_index) == 5


def test_sealing_and_trimming_read_each_entry_once() -> None:
    """But trims read the last entry of a page again, since they keep it until they have seen its successor."""
    full, small = counts.counted().seal_full, counts.counted().seal
    for step in ("seal", "trim"):
        read = getattr(full, step)["read_units"] - getattr(small, step)["read_units"]
        assert read == pytest.approx(full.entry_bytes / 4096, rel=0.02 if step == "seal" else 0.04)
    assert small.seal["put"] == 4  # the log's description, once; segment, key page, manifest


def test_the_operations_take_the_calls_that_are_promised() -> None:
    """One write for an append, push, claim or ack, a transaction for an append with a key, none for a claim of nothing."""
    spent = counts.counted().operations
    for name in ("append to a topic", "enqueue", "claim", "ack", "event pushed"):
        assert spent[name] == {"PutItem": 1, "write_units": 1}, name
    for name in ("append with an idempotency key", "event pushed with a dedupe value"):
        assert spent[name] == {"TransactWriteItems": 1, "write_units": 6}, name
    one, eleven = spent["fold of 1 row"], spent["fold of 11 rows"]
    assert [eleven[name] - one[name] for name in ("PutItem", "write_units")] == [10, 10]
    assert (one["PutItem"], one["write_units"]) == (2, 2), "the row and the mark"
    assert {name: spent["row read"][name] for name in ("GetItem", "Query")} == {"GetItem": 1, "Query": 1}
    assert spent["row read, stale"]["read_units"] == 0.5
    for name in (
        "claim that finds nothing",
        "diff at the tail",
        "watch looks at its bell",
        "socket command",
        "row read",
    ):
        assert "write_units" not in spent[name], name
    for name in ("append copied by a router", "message pushed to a socket", "bell rung for an append"):
        assert spent[name]["write_units"] == 1, name


def test_a_log_takes_half_a_megabyte_of_entries_a_second_for_long() -> None:
    """All entries of a log are in one partition, which each takes up twice: when it is written, and when it is trimmed."""
    full = counts.counted().seal_full
    appends = {(one.record_bytes, one.batch): one for one in counts.counted().appends}
    large, small, spilled = appends[500, 100], appends[500, 1], appends[500, 3000]
    first, data = 1, full.entries - 2  # the newest entry stays
    assert full.trim["write_units"] == first + data * large.spent["write_units"]
    entries_a_second = PARTITION_UNITS / (2 * large.spent["write_units"])
    kilobytes = entries_a_second * large.item_bytes / 1000
    assert f"or about {round(kilobytes, -2):.0f} KB of larger ones" in _words(ARCHITECTURE)
    assert small.spent["write_units"] == spilled.spent["write_units"] == 1
    assert f"take {PARTITION_UNITS // 2} entries of up to 1 KB a second for long" in _words(ARCHITECTURE)


def _words(page: Path) -> str:
    return " ".join(page.read_text().split())
