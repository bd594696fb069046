"""Definitions of streams, as far as jobs need them: read from the object that a task names."""

from __future__ import annotations

from functools import lru_cache

from emr_jobs import stores
from emr_jobs.stores import Door
from headrace.definition import EMPTY, Definition, decode
from headrace.errors import Damaged, InvalidRequest
from headrace.objects import ObjectMissing, Objects


@lru_cache(maxsize=64)
def known(door: Door, key: str) -> Definition:
    """As `load`, once per process: definitions never change."""
    return stores.patiently(lambda: load(stores.opened(door), key))


def load(objects: Objects, key: str) -> Definition:
    """The definition under a key; the empty one under the empty key.

    Raises:
        Damaged: the object is missing, or is not a definition.
    """
    if not key:
        return EMPTY
    try:
        definition = decode(objects.get(key), key)
        _ = definition.search, definition.lenses
    except ObjectMissing as exc:
        raise Damaged(f"definition is missing: object={key}") from exc
    except InvalidRequest as exc:
        raise Damaged(f"definition is none: object={key} reason={exc}") from exc
    return definition
