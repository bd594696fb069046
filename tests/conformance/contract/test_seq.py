"""Stream-Seq: writers that coordinate by a text that must rise."""

from __future__ import annotations

import pytest

from tests.conformance.contract.client import Stream, expect, refused

pytestmark = pytest.mark.sensitive("any process may answer an append, and must know the last value of the others")


def seq(text: str) -> dict[str, str]:
    return {"Stream-Seq": text}


def test_a_higher_value_is_accepted(stream: Stream) -> None:
    for number, text in enumerate(["1", "10", "2", "a", "b"]):
        expect(stream.append([number], seq(text)), 204)
    assert stream.records() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("text", ["5", "4", "10", "", "49"])
def test_an_equal_or_lower_value_is_refused_and_nothing_is_appended(stream: Stream, text: str) -> None:
    expect(stream.append([1], seq("5")), 204)
    refused(stream.append([2], seq(text)), 409 if text else 400)
    assert stream.records() == [1]


def test_values_are_opaque_texts_and_not_numbers(stream: Stream) -> None:
    expect(stream.append([1], seq("9")), 204)
    refused(stream.append([2], seq("10")), 409)
    expect(stream.append([2], seq("a-10")), 204)


def test_the_refusal_says_what_was_expected(stream: Stream) -> None:
    expect(stream.append([1], seq("m")), 204)
    answer = stream.append([2], seq("k"))
    assert refused(answer, 409)
    assert answer.headers["stream-expected-seq"] == "m"
    assert answer.headers["stream-received-seq"] == "k"


def test_appends_without_a_value_are_free(stream: Stream) -> None:
    expect(stream.append([1], seq("m")), 204)
    expect(stream.append([2]), 204)
    refused(stream.append([3], seq("m")), 409)
    expect(stream.append([3], seq("n")), 204)
    assert stream.records() == [1, 2, 3]
