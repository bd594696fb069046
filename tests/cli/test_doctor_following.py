"""What `headrace doctor` finds out about routers, subscriptions and queues, on stores in memory."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from headrace.batch import Batch
from headrace.log.stores import Stores
from headrace.queues.values import ClaimRequest, SettleRequest
from headrace.subscriptions.rows import Rows
from headrace.subscriptions.rules import Outcome
from headrace.surfaces import COUNTED, SURFACES
from headrace.topics.values import TopicConfig, WriteRequest
from operators.doctor.facts import FollowingFacts, JobQueueFacts, RouterFacts, SubscriptionFacts
from operators.doctor.following import Following
from tests.unit.routers.world import Process
from tests.unit.routers.world import World as Routed
from tests.unit.subscriptions.world import HOOK
from tests.unit.subscriptions.world import World as Subscribed

MINUTE_MS = 60_000


def look(stores: Stores) -> FollowingFacts:
    """Looks as another process does, which has read nothing yet."""
    return Following(replace(stores, surfaces=SURFACES, counted=COUNTED)).look()


def routed() -> tuple[Routed, Process]:
    world = Routed()
    return world, world.process()


def test_nothing_there_is_nothing_found() -> None:
    assert look(Routed().stores) == FollowingFacts()


def test_a_router_tells_how_long_its_oldest_record_waits() -> None:
    world, process = routed()
    process.route()
    process.write("a", b"1")
    process.settle()
    world.clock.advance(30)
    assert look(world.stores).routers == (RouterFacts("a->b", "a", "b"),)
    process.write("a", b"2")
    world.clock.advance(60)
    process.write("a", b"3", b"4")
    world.clock.advance(60)
    assert look(world.stores).routers == (RouterFacts("a->b", "a", "b", 3, 2 * MINUTE_MS),)


def test_a_router_whose_destination_is_full_is_blocked() -> None:
    world, process = routed()
    process.put("b", cap_records=1, discard="reject")
    process.route()
    process.write("a", b"1", b"2")
    process.settle()
    world.clock.advance(60)
    (router,) = look(world.stores).routers
    assert (router.lag, router.blocked_ms) == (1, MINUTE_MS)


def test_a_follower_that_is_due_is_told_with_its_delay() -> None:
    world, process = routed()
    process.route()
    row = process.follow()
    due = structs.replace(row, due_ms=world.clock.now_ms())
    assert world.stores.follows.put(due, row)
    world.clock.advance(60)
    (visit,) = look(world.stores).visits
    assert (visit.kind, visit.id, visit.late_ms) == ("router", "a->b", MINUTE_MS)


def test_a_queue_tells_of_its_oldest_job_and_of_those_that_were_given_up() -> None:
    world, process = routed()
    topics = process.topics
    topics.put("jobs", TopicConfig(type="queue", max_deliveries=1, dead_letter="dead"))
    topics.put("calm", TopicConfig(type="queue", dead_letter="absent"))
    topics.append("jobs", WriteRequest(records=Batch.of([b"1", b"2"])))
    assert len(topics.claim("jobs", ClaimRequest("w")).jobs) == 1
    topics.nack("jobs", SettleRequest("w", (1,)))
    world.clock.advance(60)
    assert topics.claim("jobs", ClaimRequest("w")).dead == 1
    topics.append(
        "jobs", WriteRequest(records=Batch.of([b"3"]))
    )  # the lease of the second ends before it is looked at
    world.clock.advance(60)
    assert look(world.stores).queues == (
        JobQueueFacts("calm", dead_letter="absent"),
        JobQueueFacts("jobs", 2, MINUTE_MS, "dead", 1),
    )


def test_a_webhook_that_fails_is_told_with_its_failures() -> None:
    world = Subscribed()
    world.put(HOOK)
    world.create("orders/1", 1)
    world.hear()
    world.answers = [Outcome.FAILED, Outcome.FAILED]
    for _ in range(2):
        world.tick()
        world.advance(5)
    (found,) = look(world.stores).subscriptions
    assert (found.id, found.type, found.stage, found.failures, found.error) == ("s", "webhook", "failed", 2, "")
    assert found.waited_ms >= 5_000
    while world.answers or world.subs.get("s", lambda *_: None).subscription.wake is not None:
        world.tick()
        world.advance(5)
    assert look(world.stores).subscriptions == ()


def test_a_row_that_does_not_parse_is_told_by_its_subscription() -> None:
    world = Subscribed()
    world.put(HOOK)
    row = Rows(world.stores.sessions).get("s")
    assert row is not None
    assert world.stores.sessions.put_part(structs.replace(row.part, data=b"{"), row.part)
    (found,) = look(world.stores).subscriptions
    assert found == SubscriptionFacts("s", error=found.error)
    assert "does not parse" in found.error
