"""What is sealed is read back, from any offset, by our reader and by others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.batch import EMPTY, Record
from headrace.objects.memory import MemoryObjects
from headrace.segment import writer
from headrace.segment.columns import ColumnCache
from headrace.segment.reader import find_time, read_data, rows_of_key
from tests.support.builders import batch_of
from tests.support.examples import examples
from tests.unit.segment.samples import START_MS, CountingObjects, expected, mixed, records, stored

EVERYTHING = 1 << 40


@st.composite
def contents(draw: st.DrawFn) -> list[Record]:
    datas = draw(
        st.lists(st.one_of(st.binary(max_size=40), st.integers(0, 90_000).map(bytes)), min_size=1, max_size=90)
    )
    keys = st.one_of(st.none(), st.text(max_size=6))
    time_ms, made = START_MS, []
    for row, data in enumerate(datas):
        time_ms += draw(st.sampled_from((0, 0, 1, 50)))
        made.append(Record(1000 + row, time_ms, draw(keys), data))
    return made


@examples(60)
@given(content=contents(), data=st.data())
def test_any_records_come_back_as_they_were(content: list[Record], data: st.DataObject) -> None:
    objects = MemoryObjects()
    segment = stored(content, objects, text=data.draw(st.booleans()))
    assert read_data(objects, segment, segment.first_offset, EVERYTHING, EVERYTHING) == [r.data for r in content]
    start = data.draw(st.integers(segment.first_offset, segment.end_offset - 1))
    limits = data.draw(st.integers(0, 100)), data.draw(st.integers(0, 200_000))
    assert read_data(objects, segment, start, *limits) == expected(content, start, *limits)
    time_ms = data.draw(st.integers(START_MS - 1, content[-1].time_ms + 1))
    first_late = next((r.offset for r in content if r.time_ms >= time_ms), segment.end_offset)
    assert find_time(objects, segment, time_ms) == first_late
    for key in {r.key for r in content} | {"", "absent"}:
        if key is not None:
            assert rows_of_key(objects, segment, key) == [r.offset for r in content if r.key == key]


def test_every_start_offset_reads_right_with_one_ranged_get() -> None:
    content, objects = mixed(400, first=7), CountingObjects()
    segment = stored(content, objects)
    assert len(segment.pages.sizes) > 5
    for max_records, max_bytes in ((1, 1), (3, EVERYTHING), (EVERYTHING, 1), (EVERYTHING, 60_000), (0, 0)):
        for record in content:
            objects.ranges.clear()
            found = read_data(objects, segment, record.offset, max_records, max_bytes)
            assert found == expected(content, record.offset, max_records, max_bytes)
            assert len(objects.ranges) == 1
            assert not objects.gets


@pytest.mark.parametrize("datas", [[b"", b""], [b"", b"a", b""], [b"a", b"", b""]])
def test_a_read_without_room_returns_one_record_empty_or_not(datas: list[bytes]) -> None:
    content, objects = records(datas), MemoryObjects()
    segment = stored(content, objects)
    assert read_data(objects, segment, 0, EVERYTHING, 0) == datas[:1]
    assert read_data(objects, segment, 1, EVERYTHING, 0) == datas[1:2]
    columns = ColumnCache().read(objects, segment, 0, EVERYTHING, 0)
    assert list(columns.slices()) == datas[:1]


def test_a_small_read_fetches_few_pages() -> None:
    content, objects = mixed(2000), CountingObjects()
    segment = stored(content, objects)
    read_data(objects, segment, 1234, 1, 1)
    read_data(objects, segment, 1234, 50, 1 << 20)
    (_, _, one), (_, _, many) = objects.ranges
    assert one in segment.pages.sizes
    assert many < segment.size / 5


def test_an_offset_outside_the_segment_is_refused() -> None:
    objects = MemoryObjects()
    segment = stored(mixed(10, first=5), objects)
    for offset in (4, 15):
        with pytest.raises(ValueError, match="not in the segment"):
            read_data(objects, segment, offset, 1, 1)


def test_a_record_of_ten_mebibytes_stands_on_a_page_of_its_own() -> None:
    big = bytes(range(256)) * 4096 * 10
    content, objects = records([b"a", big, b"", *[b"small"] * 200, big, b"z"]), CountingObjects()
    segment = stored(content, objects)
    assert max(segment.pages.payload) < len(big) + 300 * 1024
    for start in (0, 1, 2, 100, 203, 204):
        assert read_data(objects, segment, start, 2, EVERYTHING) == expected(content, start, 2, EVERYTHING)


def test_a_batch_never_holds_several_records_beyond_the_window() -> None:
    content = records([bytes([row % 251]) * 30_000 for row in range(200)])
    pages = writer.build(0, batch_of(content)).pages
    assert max(pages.payload) <= writer._WINDOW_BYTES + writer._PAGE_BYTES


@pytest.mark.parametrize("text", [True, False])
def test_duckdb_reads_the_object_as_it_is(tmp_path: Path, text: bool) -> None:
    content = records([b'{"n": %d, "word": "stra\xc3\x9fe"}' % row for row in range(3000)], first=50)
    path = tmp_path / "segment.parquet"
    path.write_bytes(writer.build(50, batch_of(content), text=text, log_id="abc").data)
    with duckdb.connect() as db:
        rows = db.execute(
            f"select \"offset\", epoch_ms(append_time), key, data, typeof(data) from '{path}' order by 1"
        ).fetchall()
        metadata = dict(db.execute(f"select key, value from parquet_kv_metadata('{path}')").fetchall())
    kind = "VARCHAR" if text else "BLOB"
    assert rows == [(r.offset, r.time_ms, r.key, r.data.decode() if text else r.data, kind) for r in content]
    assert metadata == {b"headrace.version": b"1", b"headrace.log_id": b"abc"}


def test_text_that_is_not_utf_8_is_sealed_as_bytes() -> None:
    content, objects = records([b"fine", b"\xff\xfe"]), MemoryObjects()
    segment = stored(content, objects, text=True)
    assert read_data(objects, segment, 0, 9, 9) == [b"fine", b"\xff\xfe"]


def test_equal_records_give_equal_segments() -> None:
    assert writer.build(0, batch_of(mixed(300))) == writer.build(0, batch_of(mixed(300)))


def test_only_records_in_order_are_sealed() -> None:
    good = mixed(3)
    with pytest.raises(ValueError, match="at least one"):
        writer.build(0, EMPTY)
    with pytest.raises(ValueError, match="fall"):
        writer.build(0, batch_of([good[0], good[1]._replace(time_ms=1)]))


def test_a_read_by_key_or_time_costs_one_get_and_a_time_at_the_edge_none() -> None:
    content, objects = mixed(100), CountingObjects()
    segment = stored(content, objects)
    assert find_time(objects, segment, 0) == 0
    assert find_time(objects, segment, segment.max_time_ms + 1) == 100
    assert not objects.gets
    assert find_time(objects, segment, START_MS + 10) == 30
    assert rows_of_key(objects, segment, "key-1") == [r.offset for r in content if r.key == "key-1"]
    assert len(objects.gets) == 2
    assert not objects.ranges


def test_reading_needs_no_pyarrow() -> None:
    code = "import sys, headrace.segment.reader, headrace.manifest.store; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
