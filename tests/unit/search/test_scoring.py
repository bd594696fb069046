"""What a hit is worth, by the contract's count of words and by BM25."""

from __future__ import annotations

import math

import pytest

from headrace.query.language import canonical, grammar, scoring
from headrace.query.language.scoring import Corpus, Wanted
from tests.unit.search.samples import CONFIG


@pytest.mark.parametrize(
    ("q", "record", "worth"),
    [
        ("message:red", {"message": "red Red blue"}, 2),
        ("message:re*", {"message": "red reddish blue"}, 2),
        ("message:red-blue", {"message": "blue red red"}, 3),
        ('message:"red blue"', {"message": "red blue red"}, 3 + 4),
        ('message:"red bl*"', {"message": "red blue black"}, 3 + 4),
        ("message:red", {"message": ["red", "red red red"]}, 3),  # the best of several
        ("message:red-blue", {"message": ["red blue", "red red red"]}, 2),  # of those that match
        ("red", {"message": "red"}, 2),  # boosted
        ("red", {"service": "Red"}, 1),
        ("red", {"service": "red", "message": "red red"}, 4),
        ("message:red message:blue", {"message": "red blue"}, 2),
        ("message:red OR message:blue", {"message": "red"}, 1),
        ("message:red OR why:red", {"message": "red", "why": "red red"}, 3),
        ("(message:red message:blue) OR has:at", {"message": "red", "at": 1}, 0),
        ("NOT message:red", {"message": "blue"}, 0),
        ("status:5", {"status": 5}, 0),
        ("message:red", {"message": "blue"}, 0),
    ],
)
def test_words_are_counted(q: str, record: object, worth: float) -> None:
    assert scoring.score(grammar.parse_query(q, CONFIG), canonical.values(CONFIG, 1, record)) == worth


def test_the_words_of_a_query_are_those_not_behind_not() -> None:
    node = grammar.parse_query('red message:"red bl*" NOT why:green', CONFIG)
    assert scoring.wanted(node) == (
        Wanted("message", "red", False, 2.0),
        Wanted("message", "red", False, 1.0),
        Wanted("message", "bl", True, 1.0),
    )


def test_bm25_is_the_formula() -> None:
    words = (Wanted("message", "red", False, 1.0),)
    corpus = Corpus({"message": 10}, {"message": 50}, (2,))
    found = scoring.frequencies(words, {"message": [("red", "blue", "red")]})
    assert found == ((2,), (3,))
    rarity = math.log(1 + (10 - 2 + 0.5) / (2 + 0.5))
    expected = rarity * 2 * 2.2 / (2 + 1.2 * (1 - 0.75 + 0.75 * 3 / 5))
    assert scoring.bm25(found, corpus.weights(words)) == pytest.approx(expected)


def test_corpora_add_up() -> None:
    one = Corpus({"a": 1}, {"a": 5}, (1, 0))
    other = Corpus({"a": 2, "b": 1}, {"a": 1, "b": 7}, (0, 1))
    assert one.plus(other) == Corpus({"a": 3, "b": 1}, {"a": 6, "b": 7}, (1, 1))


def test_a_corpus_without_records_weighs_nothing_wrongly() -> None:
    words = (Wanted("message", "red", False, 1.0),)
    ((rarity, mean),) = Corpus({}, {}, (0,)).weights(words)
    assert mean == 1.0
    assert rarity == pytest.approx(math.log(2))
