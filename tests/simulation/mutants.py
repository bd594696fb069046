"""Broken variants of the engine, one for each hazard that a rule of its own averts. The laws must notice every one.

Each is a patched adapter or an overridden step, here only. A mutant that survives is a hole in the simulation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from emr_jobs import segments
from functions.sealer import audit, handler, memo, purge, seal, trim
from headrace.clock import SystemClock
from headrace.log import commit, context, control, read, seam
from headrace.log import join as tail
from headrace.log.commit import Appender, Attempt
from headrace.manifest import merging
from headrace.manifest.store import NewestLook
from headrace.recovery import names, survey
from headrace.recovery import plan as recovering
from headrace.streams import create as creating
from headrace.streams import verbs as streams
from headrace.tables.watermarks import Watermark
from tests.simulation import background, followers, relay
from tests.simulation import mutated_sealer as sealing
from tests.simulation import mutated_steps as steps
from tests.simulation import mutated_topics as topics
from tests.simulation.mutant import Mutant
from tests.simulation.plan import make
from tests.simulation.relay import Judged
from tests.simulation.run import run

# Its table of mutants is the record of the seeds at which they are found.
PAGE = Path(__file__).parents[2] / "docs" / "verification.md"
_TABLE = re.compile(r"(\| mutant \| hazard \| found at seed \| by the law \|\n\|---\|---\|---\|---\|\n)((?:\|.*\n)+)")
# A mutant that ends with one of these is broken itself: the engine has changed under it, and no law has noticed anything.
_BROKEN = re.compile(r"(?:Attribute|Type|Name|Import)Error\(|got an unexpected keyword")


def _always_created(raw: dict[str, Any]) -> None:
    objects = raw["objects"]

    def create_anyway(key: str, data: bytes) -> bool:
        objects.put(key, data)
        return True

    objects.create = create_anyway


def _watermarks_by_name(raw: dict[str, Any]) -> None:
    wal, watermarks = raw["wal"], raw["watermarks"]
    names: dict[str, str] = {}
    put, get, publish, touch = wal.put, watermarks.get, watermarks.publish, watermarks.touch

    def learn(entry: Any) -> None:
        if entry.config is not None:
            names[entry.log_id] = entry.config.name
        put(entry)

    wal.put = learn
    watermarks.get = lambda log_id: get(names.get(log_id, log_id))
    watermarks.publish = lambda log_id, *rest: publish(names.get(log_id, log_id), *rest)
    watermarks.touch = lambda log_id, now_ms: touch(names.get(log_id, log_id), now_ms)


def _watermark_raised_by_any(raw: dict[str, Any]) -> None:
    watermarks = raw["watermarks"]

    def publish(log_id: str, generation: int, end_slot: int, end_offset: int, sealed_bytes: int) -> bool:
        watermarks.rows[log_id] = Watermark(generation, end_slot, end_offset, sealed_bytes)
        return True

    watermarks.publish = publish


def _guards_may_fail(raw: dict[str, Any]) -> None:
    wal = raw["wal"]
    whole = wal.commit

    def commit(entry: Any, guards: Any = (), read_ms: Any = None) -> Any:
        taken = [guard for guard in guards if guard.entries and guard.check(wal.tables)]
        return whole(entry, [guard for guard in guards if guard not in taken])

    wal.commit = commit


def _never_marked(raw: dict[str, Any]) -> None:
    wal = raw["wal"]
    whole = wal.put

    def put(entry: Any) -> None:
        whole(entry)
        wal.purged(entry.log_id, entry.slot)

    wal.put = put


ALL: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "request ids not compared",
            "lost answer: an entry of ours in the slot is taken for another writer's",
            (Attempt, "_send", steps.send_without_comparing),
        ),
        Mutant(
            "regrouped after an unknown outcome",
            "an entry whose fate is unknown is decided again instead of sent again",
            (Attempt, "_send", steps.send_regrouping),
        ),
        Mutant(
            "no ack fence",
            "trimmed slot: a writer with an old picture is acknowledged",
            (Attempt, "put", steps.put_without_fence),
        ),
        Mutant(
            "fence by the monotonic clock alone",
            "a frozen process does not notice how old its picture is",
            (context.Pictures, "is_old", steps.is_old_by_monotonic),
        ),
        Mutant(
            "clock that follows no store",
            "a suspended host: neither clock shows how old a picture is",
            (SystemClock, "follow", steps.follow_no_store),
        ),
        Mutant(
            "taken slot believed on an old picture",
            "a suspended host: a dead item is in the slot, and the log goes on after it",
            (Appender, "_follow", steps.follow_anything),
        ),
        Mutant(
            "guards without the published end",
            "half of a transaction: a producer's row outlives a dead entry",
            (commit, "Unpublished", steps.no_guard),
            (Attempt, "put", steps.put_without_none_guards),
        ),
        Mutant(
            "payload written once for all tries",
            "a suspended host: the object is swept before an entry names it",
            (Attempt, "_payload", steps.payload_written_once),
        ),
        Mutant("trim before publish", "trim", *sealing.everywhere("trim", sealing.trim_unpublished)),
        Mutant("newest item trimmed", "trim", *sealing.everywhere("trim", sealing.trim_newest)),
        Mutant(
            "control entries trimmed before they are folded",
            "trim",
            *sealing.everywhere("trim", sealing.trim_by_offset),
        ),
        Mutant(
            "trimmed by own age alone", "trim: late original", *sealing.everywhere("trim", sealing.trim_by_own_age)
        ),
        Mutant("trim age by append time", "trim", *sealing.everywhere("trim", sealing.trim_by_hint)),
        Mutant(
            "watermark before manifest",
            "order of sealing",
            (seal, "manifests", sealing.Stashing()),
            (seal._Run, "_ask_to_trim", sealing.watermark_first),
        ),
        Mutant(
            "watermark without its log's identity", "watermark of another incarnation", adapter=_watermarks_by_name
        ),
        Mutant("watermark raised by an older generation", "two sealers", adapter=_watermark_raised_by_any),
        Mutant("two sealers without create-if-absent", "two sealers", adapter=_always_created),
        Mutant(
            "own manifest taken for another's",
            "lost manifest answer: the loser cleans up",
            (seal._Run, "_publish_next", sealing.publish_and_clean_up),
        ),
        Mutant(
            "fork published before its source",
            "forks",
            (seal._Run, "_seal_sources", lambda self, config: None),
        ),
        Mutant("fork not counted when its source moved", "forks: half of a transaction", adapter=_guards_may_fail),
        Mutant("expiry without a control entry", "expiry", (control.Controls, "ensure_alive", steps.alive_by_clock)),
        Mutant(
            "expiry ignores the touch",
            "expiry against renewal",
            (control, "TouchUnchanged", steps.no_guard),
            (Attempt, "put", steps.put_without_none_guards),
        ),
        Mutant(
            "page across a gap",
            "stale picture in a reader",
            (tail.Tail, "covers", steps.covers_anything),
            (read.Reader, "_fill_tail", steps.fill_across_gaps),
        ),
        Mutant(
            "dead item served",
            "dead item: the chain is not confirmed",
            (tail, "confirmed", steps.believe_all),
            (read.Reader, "_fill_tail", steps.fill_or_fail),
        ),
        Mutant(
            "refusal from stale state",
            "refusal on an old picture",
            (seam.Decision, "tells", steps.tells_duplicates_only),
        ),
        Mutant(
            "duplicate from stale state",
            "repeat on an old picture",
            (seam.Decision, "tells", steps.tells_refusals_only),
        ),
        Mutant(
            "producer forgotten when it leaves the state",
            "producers",
            (streams, "PutProducer", steps.no_guard),
            (Attempt, "put", steps.put_without_none_guards),
        ),
        Mutant(
            "purge without raising the watermark",
            "late writer into a purged log",
            *sealing.everywhere("purge", sealing.purge_without_watermark),
        ),
        Mutant(
            "incarnation not raised", "a name created again", (creating, "_create", steps.create_with_incarnation_0)
        ),
        Mutant(
            "fresh payloads swept",
            "orphans: a payload before its entry",
            (trim, "_orphaned_payloads", sealing.payloads_without_age),
        ),
        Mutant(
            "created though its announcement was buried",
            "a create that was held up names an object that was swept",
            (commit, "Born", steps.BornAnyway),
        ),
        Mutant(
            "payloads of failed creates forgotten",
            "a create dies, or loses its race, after it put its payload",
            (audit, "_sweep_unborn", sealing.forget_unborn),
        ),
        Mutant(
            "create that is not announced",
            "a create dies, or loses its race, after it put its payload",
            (Attempt, "_announce", lambda self, key: None),
        ),
        Mutant(
            "audit overlooks what was not sealed",
            "a lost event: entries are never sealed, or never trimmed",
            (audit, "_missed", lambda *_: []),
        ),
        Mutant(
            "what must be purged is not marked",
            "a lost event: a deleted stream is never purged",
            adapter=_never_marked,
        ),
        Mutant(
            "marks that nobody walks",
            "a lost event: a deleted stream is never purged",
            (handler, "overdue", lambda parts: 0),
        ),
        Mutant(
            "mark removed before its log",
            "a lost message: a purge is never finished",
            (purge, "_remove", sealing.unmarked_first),
        ),
        Mutant(
            "each repeat begins one more chain",
            "messages that multiply",
            (memo, "go_on", sealing.go_on_anyhow),
        ),
        Mutant(
            "manifest generations removed at once",
            "manifest generations: a reader that lags",
            (trim, "_outdated", sealing.outdated_at_once),
        ),
        Mutant(
            "look never too old",
            "a sealer slept until the generation that it would publish was swept",
            (NewestLook, "check", lambda self: None),
        ),
        Mutant(
            "merge publishes over a newer generation",
            "a sealer took the generation first",
            (background, "publish_merged", sealing.publish_merged_anyway),
        ),
        Mutant(
            "merged segment lacks a record",
            "merging: the same records, byte for byte",
            (segments, "read_records", sealing.read_records_but_one),
        ),
        Mutant(
            "replaced objects removed at once",
            "merging: readers of an older generation",
            (merging, "removable", sealing.removable_at_once),
        ),
        Mutant(
            "replaced objects forgotten at once",
            "merging: readers of an older generation",
            (merging, "forgettable", sealing.removable_at_once),
        ),
        Mutant(
            "reader takes a merged segment for damage",
            "merging: stale manifest in a reader",
            (read, "SegmentMissing", sealing.NeverMissing),
        ),
        Mutant(
            "incarnation not raised by a recovery",
            "offsets of lost records come again",
            (recovering, "raised_incarnation", steps.incarnation_as_it_was),
        ),
        Mutant(
            "recovery trusts the watermark",
            "tables of different moments: the bucket knows more than the watermark",
            (survey, "look", steps.look_up_to_the_watermark),
        ),
        Mutant(
            "recovery trusts whatever entries stand",
            "tables restored to before what is published",
            (survey, "_tail", steps.joins_anyhow),
        ),
        Mutant(
            "recovery overlooks tombstones",
            "a purged log that tables bring back",
            (survey, "look", steps.look_past_tombstones),
        ),
        Mutant(
            "recovery counts no forks",
            "forks that a restored source does not know",
            (names, "resolve", steps.resolve_without_forks),
        ),
        Mutant(
            "prepared once for all definitions",
            "an append that lost its slot to a change keeps the verdict of the schema before",
            (streams, "_prepare", steps.prepare_once),
        ),
        Mutant(
            "definition named before it is written",
            "order of defining",
            (Attempt, "write", steps.write_nothing),
        ),
        Mutant(
            "profile changed without its row",
            "a listing beside a log",
            (Attempt, "put", steps.put_definition_without_row),
        ),
        *topics.MUTANTS,
        *followers.MUTANTS,
        *relay.MUTANTS,
    )
}


class Found(NamedTuple):
    """Where a mutant is found: the first seed, and the law that it breaks there."""

    seed: int
    law: str


def judge(mutant: Mutant, seed: int, operations: int, *, is_active: bool = True) -> Judged:
    """Runs one seed in the world of a mutant; on the engine as it is unless `is_active`."""
    broken = mutant if is_active else None
    if mutant.world:
        return relay.judge(mutant.world, seed, broken)
    verdict = run(make(seed, operations), broken)
    return Judged(seed, verdict.law, verdict.text, verdict.checked)


def is_broken(text: str) -> bool:
    """Returns whether a run ended because the mutant no longer fits the engine, and not because a law was broken."""
    return _BROKEN.search(text) is not None


def read_found() -> dict[str, Found]:
    """Returns where each mutant was found when the table in docs/verification.md was written."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in _table()[2].splitlines()]
    return {name: Found(int(seed), law) for name, _, seed, law in rows}


def write_found(found: dict[str, Found]) -> None:
    """Writes the table in docs/verification.md again."""
    rows = "".join(f"| {name} | {ALL[name].hazard} | {one.seed} | {one.law} |\n" for name, one in found.items())
    page, table = PAGE.read_text(), _table()
    PAGE.write_text(page[: table.start(2)] + rows + page[table.end(2) :])


def _table() -> re.Match[str]:
    table = _TABLE.search(PAGE.read_text())
    assert table is not None, f"{PAGE} has no table of mutants"
    return table
