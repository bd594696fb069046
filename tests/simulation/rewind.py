"""What the oracle holds true after tables went back in time, before anybody recovers.

Of each log there is what was published, or what the entries that stand reach, whichever is more. All else is lost. A log
of which nothing is left is known by its row, or by what the bucket says of it, or not at all.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.objects import keys
from tests.simulation import topic_pasts
from tests.simulation.log_model import LogModel, View
from tests.simulation.world import World


class Before(NamedTuple):
    """A log when a disaster met it. `is_named`: its name stood for it. `must_stand`: so it does when all is over."""

    log: LogModel
    view: View
    incarnation: int
    is_named: bool
    must_stand: bool


def rewind(world: World) -> dict[str, Before]:
    """Makes the model follow the tables as they stand now; what it knew before, by log."""
    model, judge, step = world.model, world.judge, world.scheduler.step()
    model.over = {log_id for log_id, log in model.logs.items() if log.now.ended} | {
        log_id for log_id in model.over if log_id in model.lost
    }
    # Logs that an earlier catalog does not know any more, although they live: some were published since.
    rivals = {model.logs[log_id].config.name for log_id in model.left_alone if not model.logs[log_id].now.ended}
    before: dict[str, Before] = {}
    for log_id, log in list(model.logs.items()):
        log.survived = True
        is_gone = keys.tombstone(log_id) in world.objects._objects
        published = judge.manifests.get(log_id)
        is_named = model.is_named(log)
        has_rival = log.config.name in rivals
        must_stand = is_named and bool(published) and not log.now.ended and not has_rival
        before[log_id] = Before(log, log.now, log.incarnation, is_named, must_stand)
        newest = world.raw["wal"].newest(log_id)
        standing = _position(log, newest.slot, newest.id) if newest is not None else -1
        if is_gone:
            _bury(log, standing if newest is not None else len(log.entries) - 1, step)
            continue
        last = _position(log, published[-1].last_slot, published[-1].last_id) if published else -1
        if max(standing, last) < 0:
            model.lost[log_id] = model.logs.pop(log_id)
        else:
            _cut(world, log, max(standing, last), step)
    rows = {name: row.log_id for (_, name), row in world.raw["catalog"].rows.items()}
    for name in model.names:
        model.name_given(name, rows.get(name, ""), step)
    judge.rewind()
    world.followers.rewind()
    topic_pasts.join_again(world)
    return before


def _position(log: LogModel, slot: int, entry_id: str) -> int:
    found = log.position_of(slot, entry_id)
    assert found is not None, f"not in the log: {log.log_id} {slot} {entry_id}"
    return found


def _bury(log: LogModel, index: int, step: int) -> None:
    """A purged log: that it has ended is in the bucket."""
    assert log.now.ended, log
    log.gone = True
    log.entries = log.entries[: index + 1]
    log.views = [log.now._replace(step=step, forks=0, holds_source=False)]
    log.steps = [step]


def _cut(world: World, log: LogModel, index: int, step: int) -> None:
    """Entries behind `index` never were."""
    log.entries, log.views, log.steps = log.entries[: index + 1], log.views[: index + 1], log.steps[: index + 1]
    topic_pasts.go_back(world, log, index)
    count = log.tip.next_offset - log.config.base_offset
    log.records, log.times = log.records[:count], log.times[:count]
    log.versions = log.versions[:count]
    state = log.tip.state
    known = {one.id: one for one in state.producers}
    if state.producers_spilled:
        rows = world.raw["producers"].rows
        known = {one.id: one for (log_id, _), one in rows.items() if log_id == log.log_id} | known
    log.producers = {name: [(step, one.epoch, one.seq)] for name, one in sorted(known.items())}
    log.applied = {name: [one for one in done if one[0] <= log.tip.slot] for name, done in log.applied.items()}
