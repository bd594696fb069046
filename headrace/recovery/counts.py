"""Checks the counters of names, and sets them right.

A counter is the number of its surface's rows that are not marked as ended: rows and counter change together, so they
differ only if tables were lost, or restored to different moments. The rows are counted by the index of living names, which
lags by a moment; a counter that changed while its rows were counted is taken as right.
"""

from __future__ import annotations

from headrace.errors import StoreError
from headrace.log.stores import Stores
from headrace.recovery.report import Counted
from headrace.tables.catalog import BUCKETS
from headrace.tables.counters import SHARDS, SetShard, part_of

_PAGE = 1000


def check_counts(stores: Stores, *, repair: bool = False) -> list[Counted]:
    """Returns the counters that are wrong. It reads the rows of all names that live.

    Args:
        repair: whether to set them right. No writer may run meanwhile.

    Raises:
        StoreError: a store did not answer, or somebody wrote meanwhile.
    """
    wrong = []
    for surface in sorted(stores.counted & frozenset(stores.surfaces)):
        before = stores.sessions.counts(surface)
        names = sum(_living(stores, surface, bucket) for bucket in BUCKETS)
        if sum(before) == names or stores.sessions.counts(surface) != before:
            continue
        wrong.append(Counted(surface, names, sum(before)))
        if repair:
            guards = [SetShard(surface, shard, before[shard], part_of(shard, names)) for shard in range(SHARDS)]
            if stores.sessions.commit(guards) is not None:
                raise StoreError("names were created or ended meanwhile; run the recovery again, alone")
    return wrong


def _living(stores: Stores, surface: str, bucket: str) -> int:
    number, after = 0, ""
    while rows := stores.catalog.part(surface, bucket, after=after, limit=_PAGE):
        number, after = number + len(rows), rows[-1].name
    return number
