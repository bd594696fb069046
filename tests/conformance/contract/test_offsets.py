"""Offsets: opaque texts of 26 characters that carry a position and the life that it belongs to."""

from __future__ import annotations

import pytest

from tests.conformance.contract.client import ZERO, Api, Stream, expect, refused

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def value(offset: str) -> tuple[int, int, int]:
    """Epoch, position and place in the block. 26 characters hold 130 bits, the last two of which are padding."""
    number = 0
    for char in offset:
        number = number * 32 + ALPHABET.index(char)
    bits, padding = divmod(number, 4)
    assert padding == 0
    return bits >> 96, (bits >> 32) & (2**64 - 1), bits & (2**32 - 1)


def offset_of(epoch: int, position: int) -> str:
    """Returns the offset of a position, as text."""
    number = (epoch << 96 | position << 32) << 2
    return "".join(ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def ends(stream: Stream, count: int) -> list[str]:
    """Appends so many records one by one; returns the offset after each."""
    return [expect(stream.append([n]), 204).headers["stream-next-offset"] for n in range(count)]


def test_offsets_are_26_characters_of_crockford_base32(stream: Stream) -> None:
    for offset in ends(stream, 3):
        assert len(offset) == 26
        assert set(offset) <= set(ALPHABET)


def test_an_offset_carries_epoch_and_position(stream: Stream) -> None:
    assert [value(offset) for offset in ends(stream, 3)] == [(0, 1, 0), (0, 2, 0), (0, 3, 0)]
    assert value(ZERO) == (0, 0, 0)
    assert stream.end == offset_of(0, 3)


def test_offsets_sort_as_their_records(stream: Stream) -> None:
    offsets = ends(stream, 40)
    assert offsets == sorted(offsets)
    assert len(set(offsets)) == 40


def test_a_read_begins_after_its_offset(stream: Stream) -> None:
    first, second, third = ends(stream, 3)
    assert stream.records(offset=first) == [1, 2]
    assert stream.records(offset=second) == [2]
    assert stream.records(offset=third) == []


def test_minus_one_is_the_start(stream: Stream) -> None:
    ends(stream, 3)
    answer = expect(stream.read(offset="-1"), 200)
    assert answer.json() == [0, 1, 2]
    assert stream.records(offset=ZERO) == [0, 1, 2]


def test_an_answer_names_the_canonical_offset(stream: Stream) -> None:
    answer = expect(stream.read(offset="-1"), 200)
    assert answer.headers["stream-next-offset"] == ZERO


def test_without_an_offset_a_read_begins_at_the_start(stream: Stream) -> None:
    ends(stream, 2)
    assert stream.records() == [0, 1]


@pytest.mark.sensitive("the end is in memory, in another process or only in the store")
def test_now_is_the_end(stream: Stream) -> None:
    ends(stream, 2)
    answer = expect(stream.read(offset="now"), 200)
    assert answer.json() == []
    assert answer.headers["stream-next-offset"] == stream.end


def test_the_letters_of_an_offset_may_be_small_or_look_alike(stream: Stream) -> None:
    offsets = ends(stream, 3)
    small = offsets[0].lower().replace("0", "o")
    answer = expect(stream.read(offset=small), 200)
    assert answer.json() == [1, 2]
    assert answer.headers["stream-next-offset"] == offsets[2]


@pytest.mark.parametrize(
    "offset", ["0", "1", "2", "10", "-2", "", "abc", "U" * 26, ZERO + "0", ZERO[1:], "0" * 25 + "!"]
)
def test_anything_else_is_refused(stream: Stream, offset: str) -> None:
    refused(stream.read(offset=offset), 400)


@pytest.mark.sensitive("a process may remember the earlier life")
def test_an_offset_of_an_earlier_life_is_refused(api: Api) -> None:
    stream = api.stream()
    old = ends(stream, 2)
    expect(stream.delete(), 204)
    expect(stream.put(), 201)
    new = ends(stream, 2)
    assert value(new[0])[0] > value(old[0])[0]
    refused(stream.read(offset=old[0]), 410)
    assert stream.records(offset=new[0]) == [1]


def test_an_offset_beyond_the_end_reads_nothing(stream: Stream) -> None:
    epoch, position, _ = value(ends(stream, 1)[0])
    beyond = offset_of(epoch, position + 1000)
    answer = expect(stream.read(offset=beyond), 200)
    assert answer.json() == []
    assert answer.headers["stream-next-offset"] == beyond
