"""A publisher may fall asleep around any call, until the generation that it would create was swept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from functions.indexer.follow import follow
from functions.indexer.look import look
from functions.indexer.policy import IDLE_RETIRE_AGES
from functions.indexer.retire import PUBLISH_MS, rebuild, remove_generations
from functions.indexer.retire import sweep_orphans as sweep_index
from functions.indexer.start import start
from functions.sealer.trim import sweep_orphans
from headrace.errors import StoreError, StoreThrottled
from headrace.index.descriptors import decode
from headrace.manifest.store import KEPT_MS
from headrace.recovery.verify import verify
from tests.unit.indexer.world import World, each_call
from tests.unit.sealer.world import Interrupts

SLEEP_S = KEPT_MS / 1000 + 1  # the shortest after which a generation that was replaced at its begin is swept


class Case(NamedTuple):
    """A log, a verb that publishes, and what others do: `publish` takes the next number, `settle` comes to rest."""

    world: World
    log_id: str
    verb: Callable[[Any], object]
    publish: Callable[[], object]
    settle: Callable[[], object]
    written: list[bytes]
    is_index: bool = True
    verb_of_indexer: bool = True

    @property
    def plain(self) -> Any:
        """The parts of a host that does not sleep."""
        return self.world.indexer if self.verb_of_indexer else self.world.parts

    def standing(self) -> list[int]:
        """Returns the generations of what the verb publishes."""
        store: Any = self.world.indexer.indexes if self.is_index else self.world.stores.manifests()
        standing: list[int] = store.standing(self.log_id)
        return standing

    def sweep(self) -> None:
        """Removes what the daily sweeps remove."""
        sweep_orphans(self.world.parts, self.log_id)
        remove_generations(self.world.indexer, self.log_id)
        sweep_index(self.world.indexer, self.log_id)

    def check(self) -> None:
        """Asserts that every record is there, and that every object exists that is in force."""
        errors = [one for one in verify(self.world.stores, self.log_id).findings if one.severity == "error"]
        assert [one for one in errors if one.kind != "index.damaged"] == [], "parts of this world are made up"
        published = self.world.published(self.log_id)
        assert published == self.written[: len(published)]
        for run in self.world.index(self.log_id).runs:
            found = decode(self.world.objects.get(run.descriptor), run.descriptor)
            for part in found.parts["lex"]:
                self.world.objects.get(part.key)


def indexed() -> tuple[World, str, list[bytes], Callable[[], None], Callable[[], None]]:
    """Returns a log with one generation of its index, and what others do to it."""
    world = World()
    log_id = world.create("a")
    written = world.publish("a", log_id, 2)
    others(world, log_id)
    assert world.indexer.indexes.standing(log_id) == [1]

    def publish() -> None:
        index = world.index(log_id)
        following = replace(index, generation=index.generation + 1, created_ms=world.indexer.now_ms())
        assert world.indexer.publish(following, world.indexer.look())

    return world, log_id, written, publish, lambda: others(world, log_id)


def others(world: World, log_id: str) -> None:
    """What is due for an index: looked at, started, done and published."""
    look(world.indexer, log_id)
    world.wait(400)
    world.tick()
    world.work_all()
    follow(world.indexer)


def following() -> Case:
    world, log_id, written, publish, settle = indexed()
    written += world.publish("a", log_id, 2)
    look(world.indexer, log_id)
    world.wait(400)
    start(world.indexer)
    world.work_all()

    def rebuilt() -> None:
        follow(world.indexer)
        rebuild(world.indexer, log_id)
        settle()
        settle()

    return Case(world, log_id, follow, publish, rebuilt, written)


def test_a_run_that_was_retired_and_removed_is_not_published_again() -> None:
    def run(at: int) -> bool:
        case = following()
        world, log_id = case.world, case.log_id

        def retire() -> None:
            follow(world.indexer)
            rebuild(world.indexer, log_id)
            world.wait(IDLE_RETIRE_AGES * world.indexer.limits.retire_age_ms / 1000)
            start(world.indexer)
            assert not world.index(log_id).retired

        hook = Interrupts(at, retire)
        with contextlib.suppress(StoreError):
            follow(world.watched_indexer(hook))
        case.check()
        return hook.calls >= at

    assert each_call(run) > 6


def test_a_run_that_comes_late_is_not_published() -> None:
    case = following()
    case.world.wait(PUBLISH_MS / 1000 + 1)
    follow(case.world.indexer)
    assert case.standing() == [1]
    case.settle()
    assert case.world.covered(case.log_id)


def test_an_orphan_sweep_that_slept_removes_no_run_in_force() -> None:
    def run(at: int) -> bool:
        world, log_id, written, publish, settle = indexed()
        world.wait(SLEEP_S)  # so that the run in force is looked at
        written += world.publish("a", log_id, 2)
        look(world.indexer, log_id)
        world.wait(400)
        start(world.indexer)
        world.work_all()

        def sleep() -> None:
            follow(world.indexer)
            world.wait(SLEEP_S)

        hook = Interrupts(at, sleep)
        with contextlib.suppress(StoreThrottled):
            sweep_index(world.watched_indexer(hook), log_id)
        Case(world, log_id, follow, publish, settle, written).check()
        return hook.calls >= at

    assert each_call(run) > 3
