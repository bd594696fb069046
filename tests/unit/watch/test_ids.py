"""The ids of events: what a client gets, and what comes back from it."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.watch import ids

FEW, MANY = ("a", "b.c"), tuple(f"t{number}" for number in range(1000))


def test_the_id_of_few_topics_says_all() -> None:
    assert not ids.is_long(FEW)
    text = ids.encode(FEW, (7, 0), 3, ())
    assert json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4))) == {"a": 7, "b.c": 0}
    assert ids.decode(text, FEW, 3, ()) == [7, 0]
    assert ids.decode(text, ("b.c", "new"), 3, ()) == [0, None], "of a topic that it does not name it says nothing"


def test_many_topics_or_long_names_have_short_ids() -> None:
    assert ids.is_long(MANY[:65])
    assert not ids.is_long(MANY[:64])
    assert ids.is_long(tuple("x" * 200 + str(number) for number in range(10)))
    assert len(ids.encode(MANY, range(1000), 1, range(1000))) < 10
    busy = [before + 1_000_000 for before in range(1000)]
    assert len(ids.encode(MANY, busy, 1, range(1000))) < 8192, "a header has room for it, however busy the stream is"


@given(st.data())
def test_an_id_of_many_topics_comes_back(data: st.DataObject) -> None:
    seqs = st.lists(st.integers(0, 2**60), min_size=70, max_size=70)
    base, now = data.draw(seqs), data.draw(seqs)
    for number in data.draw(st.sets(st.integers(0, 69))):
        now[number] = base[number]
    text = ids.encode(MANY[:70], now, 5, base)
    assert ids.decode(text, MANY[:70], 5, base) == now
    assert ids.decode(text, MANY[:70], 6, base) == base, "its client has had no event since stream 6 began"
    assert ids.decode(text, MANY[:70], 4, base) is None, "there was no stream 5"


@given(st.one_of(st.text(max_size=60), st.binary(max_size=60).map(lambda data: urlsafe_b64encode(data).decode())))
def test_whatever_a_client_gives_is_understood_or_ignored(text: str) -> None:
    for names, base in ((FEW, ()), (MANY[:70], (1,) * 70)):
        found = ids.decode(text, names, 2, base)
        assert found is None or (len(found) == len(names) and all(seq is None or seq >= 0 for seq in found))


@pytest.mark.parametrize(
    "changes", [[2, 0], [2, -1, 1], [2, 70, 1], [2, 69, 1, 1, 1], [], [3, 0, 1], ["x"], [2, 0, "1"]]
)
def test_changes_that_mean_nothing_are_ignored(changes: list[object]) -> None:
    text = urlsafe_b64encode(msgspec.msgpack.encode(changes)).decode()
    assert ids.decode(text, MANY[:70], 2, (1,) * 70) is None
