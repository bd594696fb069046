"""Checks the entries of one log: whether they form a chain from the published end to the newest, and whether their
payloads are intact.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.errors import Damaged, Overloaded
from headrace.log.context import Stores
from headrace.log.join import PayloadTrimmed, read_payload
from headrace.manifest.manifest import Manifest
from headrace.recovery.report import Notes
from headrace.wal.state import Entry, LogState


class Link(NamedTuple):
    """An entry without its payload, and a description of what is wrong with the payload."""

    slot: int
    id: str
    kind: str
    next_slot: int | None
    prev_slot: int
    prev_id: str
    state: LogState
    payload_key: str | None
    fault: tuple[str, str]  # kind of finding and reason; empty if there is none


def read_links(stores: Stores, log_id: str) -> list[Link]:
    """Reads every entry, ascending, and checks its payload. Keeps the entries without their payloads in memory."""
    links: list[Link] = []
    start = 0
    while True:
        page = stores.wal.read(log_id, start=start)
        links += [_link(stores, entry) for entry in page.entries]
        if page.complete:
            return links
        start = page.entries[-1].slot + 1


def _link(stores: Stores, entry: Entry) -> Link:
    try:
        next_slot = entry.next_slot(deleting=True)
    except Overloaded:
        next_slot = None
    return Link(
        slot=entry.slot,
        id=entry.id,
        kind=entry.kind,
        next_slot=next_slot,
        prev_slot=entry.prev_slot,
        prev_id=entry.prev_id,
        state=entry.state,
        payload_key=entry.payload_key,
        fault=_fault(stores, entry),
    )


def _fault(stores: Stores, entry: Entry) -> tuple[str, str]:
    if entry.state.next_offset != entry.next_offset:
        return "wal.entry", f"next_offset is {entry.state.next_offset}, its records end at {entry.next_offset}"
    if sum(run.count for run in entry.times) != entry.count:
        return "wal.entry", f"it has {entry.count} records and other append times"
    try:
        read_payload(stores, entry)
    except PayloadTrimmed:
        return "payload.missing", f"slot {entry.slot}"
    except Damaged as exc:
        return "payload.damaged", str(exc)
    return "", ""


def check_chain(notes: Notes, links: list[Link], manifest: Manifest | None) -> None:
    """Follows the entries from the newest back to the published end or the log's first, as each names its
    predecessor.
    """
    notes.counts["entries"] = len(links)
    end_slot = manifest.end_slot if manifest is not None else 0
    by_slot = {link.slot: link for link in links}
    oldest_slot = links[0].slot
    current, confirmed = links[-1], {links[-1].slot}
    _check_link(notes, current, end_slot)
    if manifest is not None and current.slot < end_slot:
        _check_last(notes, "wal.behind", (current.slot, current.id), manifest)
    while current.prev_slot >= 0:
        before = (current.prev_slot, current.prev_id)
        if manifest is not None and current.slot >= end_slot > current.prev_slot:
            _check_last(notes, "wal.join", before, manifest)
        link = by_slot.get(current.prev_slot)
        if link is not None and link.id != current.prev_id:
            link = None  # a dead item in the place of one that is published
        if link is None:
            if current.kind == "recover" and current.slot < end_slot:
                confirmed |= by_slot.keys()  # entries before a recovery are left over, and are published
            elif current.prev_slot >= end_slot:
                notes.error("wal.missing", f"slot {current.prev_slot}", expected=before)
            elif current.prev_slot > oldest_slot:
                notes.warn("wal.missing", f"slot {current.prev_slot}", expected=before)
            link = _next_below(links, current.prev_slot)
            if link is None or link.slot in confirmed:
                break
        elif link.next_slot != current.slot:
            notes.error("wal.entry", f"slot {current.slot}", expected=f"slot {link.next_slot}")
        _check_link(notes, link, end_slot)
        confirmed.add(link.slot)
        current = link
    for link in links:
        if link.slot not in confirmed:
            notes.warn("wal.dead", f"slot {link.slot}")


def _next_below(links: list[Link], slot: int) -> Link | None:
    """Returns the first entry below a gap, from which the check continues; None if there is none."""
    return next((link for link in reversed(links) if link.slot < slot), None)


def _check_last(notes: Notes, kind: str, found: tuple[int, str], manifest: Manifest) -> None:
    expected = (manifest.last_slot, manifest.last_id)
    if found != expected:
        where = f"slot {found[0]}"
        notes.error("wal.behind" if kind == "wal.behind" else "wal.join", where, expected=expected, found=found)


def _check_link(notes: Notes, link: Link, end_slot: int) -> None:
    """Checks one entry and its payload. Published records are read from their segment, so a payload that was trimmed is
    no loss then.
    """
    kind, reason = link.fault
    tell = notes.warn if link.slot < end_slot else notes.error
    where = link.payload_key or f"slot {link.slot}"
    if kind == "wal.entry":
        notes.error("wal.entry", f"slot {link.slot}", found=reason)
    elif kind == "payload.missing":
        tell("payload.missing", where, expected=reason)
    elif kind == "payload.damaged":
        tell("payload.damaged", where, found=reason)
