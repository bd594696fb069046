"""Batches: columns, parts and joins; the frames that carry them: round trip, golden bytes, damage."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headrace.batch import EMPTY, Batch, Record, concat, decode_frames, encode_frames
from headrace.errors import Damaged, NewerFormat
from tests.support.builders import batch_of

TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.just("k")
ROWS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 3),
        TEXTS,
        st.binary(max_size=300),
        TEXTS,
        st.none() | st.binary(max_size=5),
        st.integers(0, 8),
    )
)
SAMPLE = Batch.of([b"data", b"", b"\x00\xff"], key=["key", None, ""])
RAW = b"\x01\x02\x03\0\0\0" + b"\x03\0\0\0\xff\xff\xff\xff\0\0\0\0key" + b"\x04\0\0\0\0\0\0\0\x02\0\0\0data\x00\xff"


def rows(batch: Batch, first: int = 0) -> list[Record]:
    return list(batch.records(first))


@given(ROWS.filter(bool))
def test_records_come_back_as_they_were(records: list[Record]) -> None:
    batch = batch_of([one._replace(time_ms=0) for one in records])
    assert decode_frames(encode_frames(batch), "here") == batch


@given(ROWS)
def test_a_batch_is_its_records(records: list[Record]) -> None:
    batch = batch_of(records)
    expected = [one._replace(offset=7 + row) for row, one in enumerate(records)]
    assert rows(batch, 7) == expected
    assert len(batch) == len(records)
    assert bool(batch) == bool(records)
    assert batch.slices() == [one.data for one in records]
    assert list(batch.keys) == [one.key for one in records]
    assert batch.size == sum(len(one.data) + len(one.key or "") for one in records)


@given(ROWS, st.lists(st.integers(-2, 12), min_size=2, max_size=2))
def test_parts_are_equal_however_they_were_made(records: list[Record], bounds: list[int]) -> None:
    first, end = sorted(bounds)
    first, end = max(first, 0), max(end, 0)
    assert batch_of(records).part(first, end) == batch_of(records[first:end])


@given(st.lists(ROWS, max_size=4))
def test_joined_batches_are_equal_however_they_were_made(batches: list[list[Record]]) -> None:
    assert concat([batch_of(one) for one in batches]) == batch_of([record for one in batches for record in one])


@given(ROWS, st.integers(1, 1000))
def test_room_ends_with_the_record_that_reaches_the_limit(records: list[Record], limit: int) -> None:
    count = batch_of(records).room_for(limit)
    assert count == len(records) or sum(len(one.data) for one in records[:count]) >= limit
    assert not count or sum(len(one.data) for one in records[: count - 1]) < limit


@pytest.mark.parametrize(
    ("given_", "column"),
    [(None, None), ("k", "k"), ([], None), (["k", "k"], "k"), ([None, None], None), (["k", None], ["k", None])],
)
def test_a_column_is_a_list_only_if_its_values_differ(given_: Any, column: Any) -> None:
    assert Batch.of([b"a", b"b"], key=given_).key == column
    assert Batch.of([]) == EMPTY and not EMPTY


def test_golden_bytes() -> None:
    assert zstandard.ZstdDecompressor().decompress(encode_frames(SAMPLE)) == RAW


def test_every_truncation_and_every_flipped_bit_is_named_or_harmless() -> None:
    frames = encode_frames(SAMPLE)
    for end in range(len(frames)):
        with pytest.raises(Damaged, match="here"):
            decode_frames(frames[:end], "here")
    for at in range(len(frames) * 8):
        flipped = bytearray(frames)
        flipped[at // 8] ^= 1 << at % 8
        try:
            assert decode_frames(bytes(flipped), "here") == SAMPLE
        except Damaged as exc:
            assert "here" in str(exc)


def test_every_flipped_bit_inside_a_right_frame_is_named_or_another_batch_of_as_many_bytes() -> None:
    for at in range(len(RAW) * 8):
        flipped = bytearray(RAW)
        flipped[at // 8] ^= 1 << at % 8
        try:
            found = decode_frames(zstandard.ZstdCompressor(write_checksum=True).compress(bytes(flipped)), "here")
        except (Damaged, NewerFormat) as exc:
            assert "here" in str(exc)
        else:
            assert len(encode_frames(found)) < 2 * len(RAW)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x01",
        b"\x00" + RAW[1:],  # another version
        RAW[:-1],
        RAW + b"\x01",
        b"\x01\0\0\0\0\0",  # no records
        b"\x01\0\xff\xff\xff\xff" + RAW[6:],  # more records than bytes
        b"\x01\x03" + RAW[2:],  # a column of no kind
        b"\x01\0\x01\0\0\0\xff\xff\xff\xff",  # more data than bytes
        b"\x01\x01\x01\0\0\0\xff\xff\xff\xffk\0\0\0\0",  # a key longer than everything
        b"\x01\x01\x01\0\0\0\x01\0\0\0\xff\0\0\0\0",  # a key that is no text
    ],
)
def test_frames_that_contradict_themselves_are_damage(raw: bytes) -> None:
    with pytest.raises(Damaged, match="contradicts"):
        decode_frames(zstandard.ZstdCompressor(write_checksum=True).compress(raw), "here")


def test_a_payload_that_claims_too_much_is_refused_before_it_is_read() -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(129 * 1024 * 1024))
    with pytest.raises(Damaged, match="sane size"):
        decode_frames(frame, "here")


def test_threads_do_not_share_a_compressor() -> None:
    batch = Batch.of([bytes([n]) * 10_000 for n in range(50)])
    made: list[bytes] = []

    def work() -> None:
        made.extend(encode_frames(batch) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(decode_frames(one, "x") == batch for one in set(made))
