"""Cursors as text: the peer's form, order, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.wal.state import BEGINNING, REFERENCE_ZERO, Cursor
from headrace.wal.state import CURSOR_LENGTH as LENGTH
from headrace.wal.state import decode_cursor as decode
from headrace.wal.state import encode_cursor as encode

CURSORS = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def test_golden_texts() -> None:
    assert encode(0, 0) == "0" * 26
    assert encode(0, 1) == "0000000000000000000G000000"
    assert encode(1, 0) == "00000080000000000000000000"
    assert encode(2**32 - 1, 2**64 - 1) == "ZZZZZZZZZZZZZZZZZZZG000000"


@given(CURSORS)
def test_a_cursor_comes_back_as_it_was(cursor: tuple[int, int]) -> None:
    text = encode(*cursor)
    assert len(text) == LENGTH
    assert set(text) <= set(ALPHABET)
    assert decode(text) == Cursor(*cursor)
    assert decode(text.lower()) == Cursor(*cursor)


@given(CURSORS, CURSORS)
def test_texts_sort_as_cursors_do(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (encode(*one) < encode(*other)) == (one < other)


def test_both_words_for_the_beginning() -> None:
    assert decode("-1") == decode(REFERENCE_ZERO) == BEGINNING
    assert decode("0" * 26) == Cursor(0, 0) != BEGINNING


def test_letters_that_look_like_digits() -> None:
    assert decode(encode(0, 5).replace("0", "o")) == Cursor(0, 5)


@pytest.mark.parametrize(
    "text", ["", "0", "0" * 25, "0" * 27, "now", "-2", "0" * 25 + "U", "0" * 25 + "é", " " * 26, "0" * 25 + "\0"]
)
def test_what_is_not_a_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        decode(text)


@given(st.integers(1, 2**34 - 1))
def test_bits_that_no_cursor_has_are_refused(low: int) -> None:
    value = int.from_bytes(b"\x01", "big") << 34 | low
    text = "".join(ALPHABET[(value >> shift) & 31] for shift in range(125, -5, -5))
    with pytest.raises(InvalidRequest):
        decode(text)


@given(st.text(max_size=40))
def test_any_text_is_decoded_or_refused(text: str) -> None:
    try:
        cursor = decode(text)
    except InvalidRequest:
        return
    assert text in ("-1", REFERENCE_ZERO) or decode(encode(cursor.incarnation or 0, cursor.position)) == cursor
