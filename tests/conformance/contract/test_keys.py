"""Reads by routing key: exact, complete, in the tail and in segments."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.conformance.contract.client import TEXT, Api, Stream, expect, refused

COMPOSED, DECOMPOSED = "\u00e9", "e\u0301"  # the same to a reader, but other keys
KEYS = ["a", "b", "A", "a b", "ключ", "日本", "a/b", "a%2Fb", "50%", "q?x#y", COMPOSED, DECOMPOSED, "k" * 4096]


@pytest.fixture(scope="session")
def keyed(api: Api) -> Stream:
    """Records with keys, some in segments where those are written, some in the tail."""
    stream = api.stream()
    for round_ in range(3):
        for number, key in enumerate(KEYS):
            expect(stream.append([{"key": number, "n": round_}], {"Stream-Key": key}), 204)
        expect(stream.append([{"key": None, "n": round_}]), 204)
    stream.settle()
    expect(stream.append([{"key": 0, "n": 3}, {"key": 0, "n": 4}], {"Stream-Key": "a"}), 204)
    return stream


@pytest.mark.parametrize("number", range(len(KEYS)))
def test_a_key_selects_its_records_and_no_others(keyed: Stream, number: int) -> None:
    rounds = 5 if KEYS[number] == "a" else 3
    assert keyed.records(key=KEYS[number]) == [{"key": number, "n": n} for n in range(rounds)]


@pytest.mark.parametrize("number", range(len(KEYS)))
def test_the_path_form_equals_the_parameter(keyed: Stream, number: int) -> None:
    by_path = keyed.api.get(f"{keyed.path}/pk/{quote(KEYS[number], safe='')}", offset="-1")
    by_parameter = keyed.read(key=KEYS[number], offset="-1")
    assert expect(by_path, 200).content == by_parameter.content
    assert by_path.headers["stream-next-offset"] == by_parameter.headers["stream-next-offset"]
    assert by_path.headers["etag"] == by_parameter.headers["etag"]


def test_the_path_wins_over_the_parameter(keyed: Stream) -> None:
    answer = keyed.api.get(keyed.path + "/pk/b", key="a")
    assert [record["key"] for record in expect(answer, 200).json()] == [1, 1, 1]


def test_a_key_that_nothing_has_finds_nothing_and_goes_on_to_the_end(keyed: Stream) -> None:
    answer = expect(keyed.read(key="nobody", offset="-1"), 200)
    assert answer.json() == []
    assert keyed.records(key="nobody") == []


@pytest.mark.sensitive("records are in the tail or in segments")
def test_a_keyed_read_goes_on_from_any_offset(stream: Stream) -> None:
    after = [
        expect(stream.append([n], {"Stream-Key": "ab"[n % 2]}), 204).headers["stream-next-offset"] for n in range(6)
    ]
    for number, offset in enumerate(after):
        assert stream.records(key="a", offset=offset) == [n for n in range(number + 1, 6) if n % 2 == 0]


@pytest.mark.sensitive("records are in the tail or in segments")
def test_a_keyed_read_passes_records_of_other_keys(stream: Stream) -> None:
    expect(stream.append(list(range(1200)), {"Stream-Key": "x"}), 204)
    expect(stream.append(["found"], {"Stream-Key": "y"}), 204)
    assert stream.records(key="y") == ["found"]
    assert stream.records(key="x") == list(range(1200))


def test_an_empty_key_is_no_key(keyed: Stream) -> None:
    assert len(keyed.records(key="")) == len(keyed.records())


def test_records_of_bytes_have_keys(api: Api) -> None:
    stream = api.stream(TEXT)
    for key, body in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        expect(stream.append_bytes(body, {"Stream-Key": key}), 204)
    assert expect(stream.read(key="a"), 200).content == b"13"
    assert expect(api.get(stream.path + "/pk/b"), 200).content == b"2"


@pytest.mark.sensitive("the tail is in memory, in another process or only in the store")
def test_a_keyed_read_finds_what_was_just_appended(stream: Stream) -> None:
    for number in range(5):
        expect(stream.append([number], {"Stream-Key": "k"}), 204)
        assert stream.records(key="k") == list(range(number + 1))


def test_a_malformed_path_is_refused(keyed: Stream, api: Api) -> None:
    refused(keyed.api.get(keyed.path + "/pk/%zz"), 400)
    refused(api.get(api.unused().path + "/pk/a"), 404)
