"""The splitter gives the exact text of every record, wherever the input is cut into chunks."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.elements import PAUSE, json_records, line_records
from cli.errors import BadInput

SPACE = st.text(alphabet=" \t\r\n", max_size=3)
SCALAR = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=12)
)
SCALAR_TEXT = st.one_of(
    SCALAR.map(json.dumps),
    st.text(max_size=12).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(["1.0", "1e5", "-0", "123456789012345678901234567890", '"\\\\"', '"\\"],[\\""', '"[{,}]"', '""']),
)


def spaced(parts: list[str], spaces: list[str]) -> str:
    return "".join(part + space for part, space in zip(parts, spaces, strict=True))


@st.composite
def containers(draw: st.DrawFn, children: st.SearchStrategy[str]) -> str:
    items = draw(st.lists(children, max_size=4))
    if draw(st.booleans()):
        keys = [json.dumps(draw(st.text(max_size=4))) for _ in items]
        items = [f"{key}{draw(SPACE)}:{draw(SPACE)}{item}" for key, item in zip(keys, items, strict=True)]
        opening, closing = "{", "}"
    else:
        opening, closing = "[", "]"
    return opening + draw(SPACE) + f"{draw(SPACE)},{draw(SPACE)}".join(items) + draw(SPACE) + closing


VALUE = st.recursive(SCALAR_TEXT, containers, max_leaves=8)


@st.composite
def chunked(draw: st.DrawFn, data: bytes) -> list[bytes]:
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[start:end] for start, end in pairwise([0, *cuts, len(data)])]


@given(st.lists(VALUE, max_size=6), st.data())
def test_an_array_gives_the_text_of_each_element(values: list[str], data: st.DataObject) -> None:
    spaces = [data.draw(SPACE) + value + data.draw(SPACE) for value in values]
    text = f"{data.draw(SPACE)}[{data.draw(SPACE)}{','.join(spaces)}{data.draw(SPACE)}]{data.draw(SPACE)}".encode()
    chunks = data.draw(chunked(text))
    assert list(json_records(chunks)) == [value.encode() for value in values]
    assert list(json_records(text[i : i + 1] for i in range(len(text)))) == [value.encode() for value in values]


@given(st.lists(VALUE.filter(lambda value: not value.startswith("[")), max_size=6), st.data())
def test_values_apart_by_white_space_are_records(values: list[str], data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([" ", "\n", "\r\n "])).join(values).encode()
    assert list(json_records(data.draw(chunked(text)))) == [value.encode() for value in values]


@given(st.lists(VALUE.map(lambda value: value.replace("\n", " ").replace("\r", " ")), max_size=6), st.data())
def test_lines_give_one_record_each(values: list[str], data: st.DataObject) -> None:
    ends = data.draw(st.sampled_from(["\n", "\r\n", "\n\n  \n"]))
    text = ends.join(values).encode()
    assert list(line_records(data.draw(chunked(text)))) == [value.encode() for value in values]


@given(VALUE, st.data())
def test_a_cut_off_array_is_refused(value: str, data: st.DataObject) -> None:
    text = f"[1, {value}]".encode()
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(BadInput):
        list(json_records([text[:cut]]))


@pytest.mark.parametrize(
    "text",
    [b"[1,,2]", b"[1,]", b"[,1]", b"[1 2]", b"]", b"}", b"[}]", b'["a]', b"[nul]", b"[01]", b'{"a" 1}', b",", b"1,2",
     b'[{"a":1]', b'"a', b"{]", b'["\x01"]'],
)  # fmt: skip
def test_what_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(BadInput):
        list(json_records([text]))
    with pytest.raises(BadInput):
        list(json_records(text[i : i + 1] for i in range(len(text))))


@pytest.mark.parametrize("line", [b"1,2", b"1],[2", b"{}{}", b"nope"])
def test_a_line_that_would_become_two_records_is_refused(line: bytes) -> None:
    with pytest.raises(BadInput, match="line 2"):
        list(line_records([b"{}\n" + line + b"\n"]))


def test_a_byte_order_mark_is_no_data() -> None:
    assert list(json_records([b"\xef", b"\xbb", b"\xbf[1]"])) == [b"1"]
    assert list(line_records([b"\xef\xbb\xbf1\n2"])) == [b"1", b"2"]


def test_pauses_pass_through_and_keep_what_is_incomplete() -> None:
    assert list(json_records([b"[1,2", PAUSE, b"3]"])) == [b"1", PAUSE, b"23"]
    assert list(line_records([b"1\n2", PAUSE, b"3\n"])) == [b"1", PAUSE, b"23"]


def test_an_array_of_many_records_is_split_in_little_memory() -> None:
    def chunks():  # type: ignore[no-untyped-def]
        yield b"["
        for number in range(50_000):
            yield b'{"n":%d, "s":"a,b]"}%s' % (number, b"," if number < 49_999 else b"]")

    last, count = b"", 0
    for record in json_records(chunks()):
        assert record is not None
        last, count = record, count + 1
    assert (count, last) == (50_000, b'{"n":49999, "s":"a,b]"}')
