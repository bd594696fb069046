"""Records whose values no family holds exactly: a run says that it does not know, and the records are looked at."""

from __future__ import annotations

import pytest

from tests.unit.engine.world import NAME, Stream, naive

LOSSY = [
    {"status": [200, 500], "why": ["red", "blue"], "message": ["red sky", "blue"]},
    {"status": 300, "why": "red blue", "message": "red blue"},
    {"status": [2**70, 1], "why": ["red blue", "x"], "message": ["blue red", "red blue"]},
    {"status": None, "why": "blue"},
    {"status": 2**70, "paid": [True, False], "cost": [1.5, -1]},
]


@pytest.mark.parametrize(
    "q",
    [
        "status:>400",
        "NOT status:>400",
        "NOT status:<300",
        "NOT (status:>400 OR status:<250)",
        "status:>400 NOT status:<300",
        "why:red-blue",
        "NOT why:red-blue",
        'NOT message:"red blue"',
        'message:"sky blue"',
        "NOT (why:red-blue AND status:>400)",
        "NOT paid:true",
        "paid:false",
        "NOT cost:>1",
        "status:1180591620717411303424",
        "NOT status:1180591620717411303424",
        "status:>=1180591620717411303424",
        "has:status",
    ],
)
def test_records_that_a_run_can_not_decide_are_looked_at(q: str) -> None:
    stream = Stream()
    stream.append(LOSSY)
    config = stream.logs.definition(NAME).search
    expected = [offset for offset, _ in naive(config, 1, LOSSY, q, [("offset", True)])]
    stream.seal()
    stream.index()
    answer = stream.search(q)
    assert [hit.candidate.offset for hit in answer.hits] == expected
    assert (answer.total, answer.exact) == (len(expected), True)
