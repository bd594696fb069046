"""Checks the indexes of one log: every generation of the index manifest, and every object of the runs that are read.

Nothing that was acknowledged is lost with them: `headrace index rebuild` makes them again from the segments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from headrace.errors import Damaged
from headrace.index import descriptors
from headrace.index.descriptors import Run
from headrace.index.manifest import KEPT_MS, IndexManifest, IndexManifestStore
from headrace.objects import ObjectMissing, Objects, keys
from headrace.recovery.notes import Notes


def check_indexes(objects: Objects, notes: Notes, standing: Iterable[str], now_ms: int) -> set[str]:
    """Checks that every generation that must exist does and decodes, and that the runs that the newest one reads are whole.

    Args:
        standing: every key of the log.
        now_ms: the server's clock. A generation may be gone if a newer one was made long enough before.

    Returns:
        The keys that are named, those of runs that await their removal included.
    """
    log_id = notes.log_id
    keys_of_index = {key for key in standing if key.startswith(keys.index(log_id))}
    numbers = {number for key in keys_of_index if (number := keys.index_generation(key)) is not None}
    store = IndexManifestStore(objects)
    newest: IndexManifest | None = None
    named = set()
    missing: list[int] = []
    for number in range(1, max(numbers, default=0) + 1):
        key = keys.index_manifest(log_id, number)
        named.add(key)
        newest = None
        try:
            newest = store.load(log_id, number)
        except Damaged as exc:
            notes.error("index.damaged", key, found=exc)
            continue
        if newest is None:
            missing.append(number)
        elif newest.created_ms <= now_ms - KEPT_MS:
            missing = [one for one in missing if one == 1]  # they were replaced by then
    for number in missing:
        notes.error("index.missing", keys.index_manifest(log_id, number))
    if newest is None:
        return named if not numbers else named | keys_of_index  # nobody can say what is named
    for run in newest.runs:
        named |= _check_run(objects, notes, run)
    retired = tuple(keys.run(log_id, one.run.id) for one in newest.retired)
    return named | {key for key in keys_of_index if key.startswith(retired)}


def _check_run(objects: Objects, notes: Notes, run: Run) -> set[str]:
    named = {run.descriptor}
    data = _checked(objects, notes, run.descriptor, run.size, run.sha256)
    if data is None:
        return named
    try:
        descriptor = descriptors.decode(data, run.descriptor)
    except Damaged as exc:
        notes.error("index.damaged", run.descriptor, found=exc)
        return named
    for parts in descriptor.parts.values():
        for part in parts:
            named.add(part.key)
            _checked(objects, notes, part.key, part.size, part.sha256)
    return named


def _checked(objects: Objects, notes: Notes, key: str, size: int, sha256: str) -> bytes | None:
    """Returns the object, if it is the one that was published."""
    try:
        data = objects.get(key)
    except ObjectMissing:
        notes.error("index.missing", key)
        return None
    if len(data) != size:
        notes.error("index.damaged", key, expected=f"{size} bytes", found=f"{len(data)} bytes")
        return None
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        notes.error("index.damaged", key, expected=f"sha256 {sha256}", found=f"sha256 {found}")
        return None
    return data
