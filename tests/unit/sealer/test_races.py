"""Two functions at once, interleaved at every store call: ranges are published once, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

from functions.sealer.seal import seal
from functions.sealer.trim import trim
from tests.unit.sealer.world import SETTINGS, Interrupts, World

MAX_CALLS = 400


def interrupted_at_each_call(run: Callable[[int], bool]) -> int:
    """Runs with an interruption before call 1, 2, … until there is none; how many calls there are."""
    for at in range(1, MAX_CALLS):
        if not run(at):
            return at - 1
    raise AssertionError("never ends")


def test_two_sealers_publish_disjoint_and_complete_ranges() -> None:
    races = 0

    def run(at: int) -> bool:
        nonlocal races
        world = World()
        log_id = world.create("a")
        written = world.fill("a", 9)
        hook = Interrupts(at, lambda: world.seal(log_id))
        sealed = seal(world.watched(hook), log_id, force=True)
        races += sealed.races_lost
        assert world.published(log_id) == written
        return hook.calls >= at

    assert interrupted_at_each_call(run) > 20
    assert races > 5


def test_a_sealer_that_is_overtaken_by_sealing_and_trimming_goes_on_behind() -> None:
    def run(at: int) -> bool:
        world = World()
        log_id = world.create("a")
        written = world.fill("a", 9)
        world.wait(SETTINGS.trim_age_ms / 1000)
        late: list[bytes] = []

        def overtake() -> None:
            world.seal(log_id)
            trim(world.parts, log_id)
            late.extend(world.fill("a", 4))
            world.seal(log_id)

        hook = Interrupts(at, overtake)
        seal(world.watched(hook), log_id, force=True)
        world.seal(log_id)
        assert world.published(log_id) == written + late
        return hook.calls >= at

    assert interrupted_at_each_call(run) > 15


def test_writers_go_on_while_a_log_is_sealed() -> None:
    def run(at: int) -> bool:
        world = World()
        log_id = world.create("a")
        written = world.fill("a", 6)
        late: list[bytes] = []
        hook = Interrupts(at, lambda: late.extend(world.fill("a", 3)))
        seal(world.watched(hook), log_id, force=True)
        assert world.published(log_id) == (written + late)[: len(world.published(log_id))]
        assert len(world.published(log_id)) >= len(written)
        world.seal(log_id)
        assert world.published(log_id) == written + late
        return hook.calls >= at

    assert interrupted_at_each_call(run) > 10


def test_a_log_that_is_deleted_while_it_is_sealed_stays_readable_or_goes() -> None:
    def run(at: int) -> bool:
        world = World()
        log_id = world.create("a")
        written = world.fill("a", 6)
        hook = Interrupts(at, lambda: world.logs.delete("a"))
        seal(world.watched(hook), log_id, force=True)
        assert world.published(log_id) in (written, [])
        return hook.calls >= at

    assert interrupted_at_each_call(run) > 10
