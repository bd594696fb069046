"""Whatever happens to a topic (writes, deletes, caps, sealing, indexing, scrubbing), a search finds what a reader gets."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.batch import Batch
from headrace.query.engine import context as engines
from headrace.query.engine.hidden import Hidden
from headrace.query.engine.search import search
from headrace.queues.verbs import Queues
from headrace.topics.values import DiffRequest, Match, TopicConfig, WriteRequest
from tests.support.examples import examples
from tests.unit.indexer.test_privacy import DAY_S, Topic

TAGS = ["a", "ab", "b", None]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(st.sampled_from(TAGS), min_size=1, max_size=8)),
        st.tuples(st.just("delete"), st.sampled_from(["a", "ab", "b"]), st.booleans()),
        st.tuples(st.just("cut"), st.integers(1, 30)),
        st.tuples(st.just("cap"), st.integers(0, 12)),
        st.tuples(st.just("process")),
        st.tuples(st.just("week")),
    ),
    min_size=3,
    max_size=10,
)


def _do(world: Topic, step: tuple[Any, ...]) -> None:
    match step:
        case ("write", tags):
            records = Batch.of([b"%d" % number for number in range(len(tags))], key=tags, node="n")
            world.topics.append("t", WriteRequest(records=records))
        case ("delete", text, is_prefix):
            world.topics.erase("t", None, Match(text, is_prefix))
        case ("cut", seq):
            world.topics.erase("t", seq, None)
        case ("cap", most):
            world.topics.put("t", TopicConfig(cap_records=most))
        case ("process",):
            world.process()
        case ("week",):
            world.process()
            for _ in range(7):
                world.pass_day()


def _check(world: Topic) -> None:
    topics = Queues(world.stores)  # of a process that knows nothing yet
    live = topics.diff("t", DiffRequest(limit=1000)).records
    engine = engines.assemble(
        world.stores, topics, find_hidden=lambda head: Hidden(topics.gone(head.config.name, head))
    )
    questions = {
        "has:ts": [one.offset for one in live],
        "tag:a": [one.offset for one in live if one.key == "a"],
        "tag:a*": [one.offset for one in live if (one.key or "").startswith("a")],
        "-has:tag": [one.offset for one in live if one.key is None],
    }
    for q, expected in questions.items():
        answer = search(engine, "t", {"q": q, "sort": ["offset:asc"], "size": 500})
        assert [hit.candidate.offset for hit in answer.hits] == expected, q
        assert (answer.total, answer.exact) == (len(expected), True), q
        by_offset = {one.offset: one for one in live}
        for hit in answer.hits:
            record = by_offset[hit.candidate.offset]
            assert hit.document.columns == (record.key, record.node, record.time_ms)
            assert hit.document.data == record.data


@examples(30)
@given(steps)
def test_a_search_finds_what_a_reader_gets_whatever_happened(found: list[tuple[Any, ...]]) -> None:
    world = Topic()
    for step in found:
        _do(world, step)
        world.clock.advance(DAY_S / 100)
        _check(world)
