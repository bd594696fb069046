"""Descriptors of index runs, as objects, and what the index manifest says of them. Imports no pyarrow."""

from __future__ import annotations

import hashlib
from itertools import pairwise

from msgspec.structs import replace

from headrace.errors import Damaged
from headrace.index.job import Task
from headrace.index.run import VERSION, Descriptor, Family, Run
from headrace.objects import ObjectMissing, Objects, keys, packed

_SORTED: frozenset[Family] = frozenset({"kw", "fts", "lex"})  # families whose parts say where each row group begins


def encode(descriptor: Descriptor) -> bytes:
    """The object of a descriptor. Equal descriptors give equal bytes."""
    return packed.encode_msgpack(descriptor)


def decode(data: bytes, source: str) -> Descriptor:
    """The descriptor in an object.

    Args:
        data: what `encode` made.
        source: the object's key, for the error.

    Raises:
        Damaged: truncated, altered, of an unknown version, or it contradicts itself.
    """
    found = packed.decode_msgpack(data, Descriptor, source)
    if found.version != VERSION:
        raise Damaged(f"index run is of an unknown version: object={source} version={found.version}")
    if not 0 <= found.first_offset < found.end_offset:
        raise Damaged(f"index run covers nothing: object={source}")
    for family, parts in found.parts.items():
        for part in parts:
            says_where = bool(part.first) == (family in _SORTED)
            says_where = says_where and len(part.chunks) in (0, len(part.first))
            if not (says_where and part.rows > 0 and 12 <= len(part.footer) + 4 <= part.size):
                raise Damaged(f"index run has a part that can't be: object={source} part={part.key}")
        firsts = [first for part in parts for first in part.first]
        if any(before > behind for before, behind in pairwise(firsts)):
            raise Damaged(f"index run has parts out of order: object={source} family={family}")
    return found


def describe(descriptor: Descriptor, key: str, data: bytes) -> Run:
    """What the index manifest says of a run whose descriptor stands as `data` under `key`."""
    return Run(
        id=descriptor.run_id,
        level=descriptor.level,
        plan=descriptor.plan,
        first_offset=descriptor.first_offset,
        end_offset=descriptor.end_offset,
        min_time_ms=descriptor.min_time_ms,
        max_time_ms=descriptor.max_time_ms,
        least_timestamp=descriptor.least_timestamp,
        greatest_timestamp=descriptor.greatest_timestamp,
        sizes={family: sum(part.size for part in parts) for family, parts in descriptor.parts.items()},
        descriptor=key,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        created_ms=descriptor.created_ms,
        objects={family: len(parts) for family, parts in descriptor.parts.items()},
    )


def made(objects: Objects, task: Task) -> Run | None:
    """The run that a task made, from its descriptor, which alone decides; None if there is none.

    Raises:
        Damaged: the descriptor contradicts itself, or is not what the task asks for.
        StoreTimeout, StoreThrottled: repeat later.
    """
    key = keys.run_descriptor(task.log_id, task.run_id)
    try:
        data = objects.get(key)
    except ObjectMissing:
        return None
    descriptor = decode(data, key)
    expected = (task.log_id, task.run_id, task.level, task.plan, task.first_offset, task.end_offset)
    found = (
        *(descriptor.log_id, descriptor.run_id, descriptor.level, descriptor.plan),
        *(descriptor.first_offset, descriptor.end_offset),
    )
    if found != expected:
        raise Damaged(f"run is not the one asked for: object={key} expected={expected} found={found}")
    return describe(descriptor, key, data)


def opened(run: Run, data: bytes) -> Descriptor:
    """The descriptor of a run, from its object.

    Raises:
        Damaged: it is not the one that the index manifest names, or contradicts itself.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != run.sha256:
        raise Damaged(f"index run is another one: object={run.descriptor} expected={run.sha256} found={found}")
    descriptor = decode(data, run.descriptor)
    described = describe(descriptor, run.descriptor, data)
    if replace(described, objects=run.objects) != run:  # the number of objects is for people
        raise Damaged(f"index run is not what the manifest says: object={run.descriptor}")
    return descriptor
