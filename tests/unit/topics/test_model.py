"""Topics behave as lists of records would, whatever is done to them, by whichever process, sealed or not."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.batch import Batch
from headrace.settings import Settings
from headrace.topics.errors import TopicFull
from headrace.topics.values import DiffRequest, Match, TopicConfig, WriteRequest, topic_of
from headrace.topics.verbs import Topics
from tests.support.examples import examples
from tests.unit.sealer.world import World
from tests.unit.topics.model import Line, Model

SIZE = 10
TAGS = (None, "a", "ab", "b")
NODES = (None, "n1", "n2")

configs = st.builds(
    TopicConfig,
    cap_records=st.sampled_from([0, 0, 1, 3, 7, 20]),
    cap_bytes=st.sampled_from([0, 0, 0, 35, 100]),
    ttl_ms=st.sampled_from([0, 0, 1000, 5000]),
    discard=st.sampled_from(["old", "old", "reject"]),
    dedupe_node=st.sampled_from([True, True, False]),
)
matches = st.sampled_from([None, Match("a"), Match("a", is_prefix=True), Match("", is_prefix=True), Match("b")])
steps = st.one_of(
    st.tuples(
        st.just("append"), st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(NODES)), min_size=1, max_size=9)
    ),
    st.tuples(
        st.just("append"), st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(NODES)), min_size=1, max_size=2)
    ),
    st.tuples(st.just("put"), configs),
    st.tuples(st.just("erase"), st.tuples(st.one_of(st.none(), st.integers(0, 60)), matches)),
    st.tuples(st.just("wait"), st.integers(1, 4000)),
    st.tuples(st.just("seal"), st.none()),
    st.tuples(
        st.just("diff"),
        st.tuples(st.integers(0, 60), st.integers(1, 8), st.sampled_from([1, 25, 1000]), st.sampled_from(NODES)),
    ),
    st.tuples(st.just("view"), st.none()),
)


class Run:
    """Two processes over one set of stores, and the model."""

    def __init__(self, config: TopicConfig) -> None:
        self.world = World(Settings(seal_records=8))
        self.topics = [Topics(self.world.stores), Topics(self.world.stores)]
        self.model = Model(config)
        self.topics[0].put("t", config)
        self.log_id = self.topics[0].head("t").log_id

    @property
    def now_ms(self) -> int:
        return self.world.clock.now_ms()

    def append(self, topics: Topics, lines: list[tuple[str | None, str | None]]) -> None:
        tags, nodes = zip(*lines, strict=True)
        batch = Batch.of([b"x" * (SIZE - 2)] * len(lines), key=tags, node=nodes, meta=b"{}")
        fits = self.model.append([Line(self.now_ms, SIZE, tag, node) for tag, node in lines], self.now_ms)
        try:
            written = topics.append("t", WriteRequest(records=batch))
        except TopicFull:
            assert not fits
        else:
            assert fits
            assert written.last_seq == len(self.model.lines) == written.first_seq + len(lines) - 1

    def put(self, topics: Topics, config: TopicConfig) -> None:
        self.model.at(self.now_ms)
        self.model.config = config
        assert not topics.put("t", config).created

    def erase(self, topics: Topics, what: tuple[int | None, Match | None]) -> None:
        before_seq, match = what
        if before_seq is None and match is None:
            return
        self.model.at(self.now_ms)
        deleted = self.model.erase(before_seq, match)
        model = self.model
        assert topics.erase("t", before_seq, match) == (
            deleted,
            len(model.lines),
            model.earliest,
            len(model.live),
            model.bytes,
        )

    def wait(self, _: Topics, ms: int) -> None:
        self.world.clock.advance(ms / 1000)

    def seal(self, _: Topics, __: None) -> None:
        self.world.seal(self.log_id)

    def view(self, topics: Topics, _: None) -> None:
        self.model.at(self.now_ms)
        view, model = topics.view("t"), self.model
        assert (view.head_seq, view.earliest_seq, view.live) == (len(model.lines), model.earliest, len(model.live))
        assert view.bytes == model.bytes
        assert view.config == model.config

    def diff(self, topics: Topics, what: tuple[int, int, int, str | None]) -> None:
        cursor, limit, max_bytes, node = what
        self.model.at(self.now_ms)
        model, end = self.model, len(self.model.lines)
        nodes = frozenset({node} - {None})
        page = topics.diff("t", DiffRequest(cursor, limit, nodes, max_bytes))
        found = [record.offset + 1 for record in page.records]
        own = {seq for seq in model.live if model.config.dedupe_node and model.lines[seq - 1].node in nodes}
        is_anew = cursor > end
        if is_anew:
            assert page.gap is not None
            assert (page.gap.first, page.gap.last, page.gap.reason) == (1, end, "recreated")
            cursor, gap = 0, set()
        elif cursor + 1 < model.evicted:
            assert page.gap is not None
            assert (page.gap.first, page.gap.last) == (cursor + 1, model.earliest - 1)
            gap = set(range(page.gap.first, page.gap.last + 1))
        else:
            assert page.gap is None
            gap = set()
        passed = set(range(cursor + 1, page.next_seq + 1))
        dead = {seq for seq in passed if model.lines[seq - 1].death}
        assert passed == set(found) | dead | own & passed | gap & passed
        assert not set(found) & (dead | own), "what is gone or own was delivered"
        lost = {seq for seq in dead if model.lines[seq - 1].death != "delete"}
        assert lost <= gap or is_anew, "what was lost involuntarily is in the gap"
        assert found == sorted(found)
        assert page.caught_up == (page.next_seq == end)
        wanted = [seq for seq in model.live if seq > cursor and seq not in own]
        assert found == wanted[: len(found)]
        if len(found) < min(limit, len(wanted)):
            assert found, "a page has a record if there is one"
            assert len(found) * SIZE >= max_bytes
        if len(wanted) < limit and max_bytes > SIZE * len(wanted):
            assert page.caught_up


@examples(300)
@given(configs, st.lists(st.tuples(st.integers(0, 1), steps), max_size=25))
def test_a_topic_is_a_list_of_records(config: TopicConfig, done: list[tuple[int, tuple[str, Any]]]) -> None:
    run = Run(config)
    floor = evicted = 0
    for who, (verb, argument) in done:
        getattr(run, verb)(run.topics[who], argument)
        state = run.topics[who].head("t").state
        topic = topic_of(state)
        assert (state.floor, topic.evict_floor) >= (floor, evicted)
        assert topic.evict_floor <= state.floor
        floor, evicted = state.floor, topic.evict_floor
        if topic.marks:
            assert len(topic.marks) <= 16
            assert sum(mark.live for mark in topic.marks) == topic.live
            assert sum(mark.bytes for mark in topic.marks) == topic.bytes
            assert topic.marks[-1].end == state.next_offset
    run.view(run.topics[0], None)
    run.diff(run.topics[1], (0, 1000, 10**6, None))
