"""The frames of an entry's payload: round trip, golden bytes, damage."""

from __future__ import annotations

import threading

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Damaged
from headrace.record import NewRecord, decode_frames, encode_frames

RECORDS = st.lists(
    st.builds(NewRecord, st.binary(max_size=300), st.none() | st.text(st.characters(exclude_categories=["Cs"]))),
    min_size=1,
)
SAMPLE = [NewRecord(b"data", "key"), NewRecord(b"", None), NewRecord(b"\x00\xff", "")]
RAW = b"\x01" + b"\x04\0\0\0\x03\0keydata" + b"\0\0\0\0\xff\xff" + b"\x02\0\0\0\0\0\x00\xff"


@given(RECORDS)
def test_records_come_back_as_they_were(records: list[NewRecord]) -> None:
    assert decode_frames(encode_frames(records), "here") == records


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
            decode_frames(bytes(flipped), "here")
        except Damaged as exc:
            assert "here" in str(exc)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x02" + RAW[1:],
        RAW[:-1],
        RAW + b"\x01",
        b"\x01\xff\xff\xff\xff\x00\x00",
        b"\x01\0\0\0\0\xfe\xff",
        b"\x01\0\0\0\0\x01\0\xff",
    ],
)
def test_frames_that_contradict_themselves_are_damage(raw: bytes) -> None:
    with pytest.raises(Damaged):
        decode_frames(zstandard.ZstdCompressor().compress(raw), "here")


def test_a_payload_that_claims_too_much_is_refused_before_it_is_read() -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(129 * 1024 * 1024))
    with pytest.raises(Damaged, match="sane size"):
        decode_frames(frame, "here")


def test_threads_do_not_share_a_compressor() -> None:
    records = [NewRecord(bytes([n]) * 10_000) for n in range(50)]
    made: list[bytes] = []

    def work() -> None:
        made.extend(encode_frames(records) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {tuple(decode_frames(one, "x")) for one in set(made)} == {tuple(records)}
