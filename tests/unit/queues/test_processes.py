"""Several processes with clocks that differ and stores that fail work on one queue; then every event must have been
allowed when it happened, and every answer must be in the events.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError, StoreThrottled, StoreTimeout
from headrace.queues import events
from headrace.queues.projection import advance
from headrace.queues.values import ClaimRequest, SettleRequest
from headrace.topics.values import DiffRequest, TopicConfig
from tests.support.clocks import ManualClock
from tests.unit.queues.model import offsets, replay
from tests.unit.queues.world import Process, World, seqs

MOST = 3  # deliveries
LEASE_MS = 400


class Crew:
    """Processes that do something at random.

    Attributes:
        acked: the seqs that were acked, as answered.
        unknown: those whose ack had no answer.
        claims: how often each seq was claimed, as answered.
        produced: how many jobs were written, as answered.
    """

    def __init__(self, seed: int, jitter_ms: int) -> None:
        self.random = Random(seed)
        self.world = World(append_timeout_ms=2_000)
        self.processes = [self.world.process(ManualClock(1_700_000_000_000 + skew)) for skew in (0, 40, -300)]
        config = {"lease_ms": LEASE_MS, "max_deliveries": MOST, "dead_letter": "dead", "claim_jitter_ms": jitter_ms}
        self.processes[0].create(**config)
        self.processes[0].queues.put("dead", TopicConfig())
        self.acked: set[int] = set()
        self.unknown: set[int] = set()
        self.claims: Counter[int] = Counter()
        self.held: dict[str, list[int]] = {}

    def step(self) -> None:
        """Does one thing, in one process, perhaps with a failure or another's work in the middle of it."""
        number = self.random.randrange(3)
        process = self.processes[number]
        if self.random.random() < 0.1:  # it starts again
            process = self.processes[number] = self.world.process(process.clock)
        process.wal.heal()
        if self.random.random() < 0.25:
            error = self.random.choice((StoreTimeout, StoreThrottled))
            process.wal.fail("commit", error, after=error is StoreTimeout and self.random.random() < 0.5)
        elif self.random.random() < 0.25:
            other = self.processes[(number + 1) % 3]
            other.wal.heal()  # or it might have work of the first one in its own middle, which would wait for itself
            process.wal.on("commit", lambda: self._do(other))
        self._do(process)

    def _do(self, process: Process) -> None:
        node = f"n{self.random.randrange(4)}"
        mine = self.held.setdefault(node, [])
        choice = self.random.random()
        some = self.random.sample(mine, min(len(mine), self.random.randint(1, 4)))
        try:
            if choice < 0.2:
                process.produce(*[b"x"] * self.random.randint(1, 5))
            elif choice < 0.3:
                for one in self.processes:
                    one.clock.advance(self.random.choice((0.01, 0.1, 0.3)))
            elif choice < 0.65:
                got = seqs(process.queues.claim("q", ClaimRequest(node, self.random.randint(1, 6), connection="s")))
                mine += got
                self.claims.update(got)
            elif choice < 0.8:
                self.unknown |= set(some)
                self.acked |= set(process.ack(node, *some).done)
                self.unknown -= set(some) - self.acked
            elif choice < 0.9:
                process.queues.nack("q", SettleRequest(node, tuple(some), delay_ms=self.random.choice((0, 50))))
            elif choice < 0.95:
                process.queues.extend("q", SettleRequest(node, tuple(some), lease_ms=300))
            elif choice < 0.97:
                process.queues.release("q", node, "s")
            else:
                process.queues.erase("q", self.random.randint(1, 20), None)
        except (HeadraceError, StoreTimeout, StoreThrottled):
            return


@pytest.mark.parametrize("jitter_ms", [0, 20])
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(5, 60))
def test_whatever_happens_each_job_has_one_holder_and_ends_once(jitter_ms: int, seed: int, steps: int) -> None:
    crew = Crew(seed, jitter_ms)
    for _ in range(steps):
        crew.step()
    cold = crew.world.process(crew.processes[0].clock)
    _, records = cold.leases()
    found = [events.decode(data, "test") for data in records]
    end = cold.queues.head("q").state.next_offset
    model = replay(found, end, MOST)
    projection = cold.folded()
    assert advance(projection, model.now_ms).counts(end) == (
        model.count("ready"),
        model.count("leased"),
        model.count("delayed"),
    )
    done = {at + 1 for at in range(end) if projection.is_done(at)}
    assert crew.acked <= done
    acked = {at + 1 for event in found if isinstance(event, events.Ack) for at in offsets(event.jobs)}
    assert crew.acked <= acked <= crew.acked | crew.unknown, "an ack without its answer, or an answer without its ack"
    for seq, count in crew.claims.items():
        assert count <= sum(
            seq - 1 in offsets(hand.jobs)
            for event in found
            for hand in ([event] if isinstance(event, events.Claim) else getattr(event, "hands", ()))
        ), "a claim that is not in the events"
    dead = [at + 1 for event in found if isinstance(event, events.Dead) for at in offsets(event.jobs)]
    letters = cold.queues.diff("dead", DiffRequest(0, limit=1000)).records
    stamps = sorted(int(record.meta.split(b'"$dead_letter_src_seq":"')[1].split(b'"')[0]) for record in letters)
    assert stamps == sorted(dead) == sorted(set(dead)), "a dead job is in the topic once"
    view = cold.queues.view("q", touch=False)
    assert view.queue is not None
    assert view.live == cold.folded().live(end) == sum(job.state != "done" for job in model.jobs.values())
