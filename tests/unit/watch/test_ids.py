"""The ids of events: what a client gets, and what comes back from it."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.watch import ids
from headrace.watch.values import Cursor

FEW, MANY = ("a", "b.c"), tuple(f"t{number}" for number in range(1000))


def at(*seqs: int) -> list[Cursor]:
    return [Cursor(0, seq) for seq in seqs]


def test_the_id_of_few_topics_says_all() -> None:
    assert not ids.is_long(FEW)
    text = ids.encode(FEW, at(7, 0), 3, ())
    assert json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4))) == {"a": 7, "b.c": 0}
    assert ids.decode(text, FEW, 3, ()) == at(7, 0)
    assert ids.decode(text, ("b.c", "new"), 3, ()) == [*at(0), None], (
        "of a topic that it does not name it says nothing"
    )


def test_the_id_tells_a_topic_from_an_earlier_one_of_its_name() -> None:
    again = [Cursor(2, 7), Cursor(0, 1)]
    text = ids.encode(FEW, again, 3, ())
    assert json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4))) == {"a@2": 7, "b.c": 1}
    assert ids.decode(text, FEW, 3, ()) == again


def test_many_topics_or_long_names_have_short_ids() -> None:
    assert ids.is_long(MANY[:65])
    assert not ids.is_long(MANY[:64])
    assert ids.is_long(tuple("x" * 200 + str(number) for number in range(10)))
    assert len(ids.encode(MANY, at(*range(1000)), 1, at(*range(1000)))) < 10
    busy = at(*(before + 1_000_000 for before in range(1000)))
    assert len(ids.encode(MANY, busy, 1, at(*range(1000)))) < 8192, (
        "a header has room for it, however busy the stream is"
    )


@given(st.data())
def test_an_id_of_many_topics_comes_back(data: st.DataObject) -> None:
    cursors = st.builds(Cursor, st.integers(0, 3), st.integers(0, 2**60))
    seqs = st.lists(cursors, min_size=70, max_size=70)
    base, now = data.draw(seqs), data.draw(seqs)
    for number in data.draw(st.sets(st.integers(0, 69))):
        now[number] = base[number]
    text = ids.encode(MANY[:70], now, 5, base)
    assert ids.decode(text, MANY[:70], 5, base) == now
    assert ids.decode(text, MANY[:70], 6, base) == base, "its client has had no event since stream 6 began"
    assert ids.decode(text, MANY[:70], 4, base) is None, "there was no stream 5"


@given(st.one_of(st.text(max_size=60), st.binary(max_size=60).map(lambda data: urlsafe_b64encode(data).decode())))
def test_whatever_a_client_gives_is_understood_or_ignored(text: str) -> None:
    for names, base in ((FEW, []), (MANY[:70], at(1) * 70)):
        found = ids.decode(text, names, 2, base)
        assert found is None or (len(found) == len(names) and all(one is None or min(one) >= 0 for one in found))


@pytest.mark.parametrize(
    "changes",
    [[2, 0], [2, -2, 1], [2, 140, 1], [2, 138, 1, 2, 1], [2, 1, 1], [], [3, 0, 1], ["x"], [2, 0, "1"]],
)
def test_changes_that_mean_nothing_are_ignored(changes: list[object]) -> None:
    text = urlsafe_b64encode(msgspec.msgpack.encode(changes)).decode()
    assert ids.decode(text, MANY[:70], 2, at(1) * 70) is None
