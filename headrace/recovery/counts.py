"""Checks the counters of names, and of what their logs hold, and sets them right.

A counter of names is the number of its surface's rows that are not marked as ended: rows and counter change together, so
they differ only if tables were lost, or restored to different moments. The rows are read from the table itself, with those
of ended names, since the index of living names may not have what this recovery has just written; a counter that changed
while its rows were counted is taken as right. Likewise for the bytes that the states of these names' logs have reserved.
"""

from __future__ import annotations

from collections import Counter

from headrace.errors import StoreError
from headrace.log.stores import Stores
from headrace.recovery.report import Counted
from headrace.recovery.survey import rows_of
from headrace.tables.catalog import Row
from headrace.tables.counters import SHARDS, TOTAL_BYTES, SetShard, part_of


def check_counts(stores: Stores, *, repair: bool = False) -> list[Counted]:
    """Returns the counters that are wrong. It reads the rows of all counted names, and the newest entry of each that lives.

    Args:
        repair: whether to set them right. No writer may run meanwhile.

    Raises:
        StoreError: a store did not answer, or somebody wrote meanwhile.
    """
    surfaces = sorted(stores.counted)
    if not surfaces:
        return []
    before = {what: stores.sessions.counts(what) for what in (*surfaces, TOTAL_BYTES)}
    right = Counter(dict.fromkeys(before, 0))
    for surface in surfaces:
        for row in rows_of(stores, surface):
            if not isinstance(row, Row) or row.ended:
                continue
            right[surface] += 1
            newest = stores.wal.newest(row.log_id)
            if newest is not None and newest.state.extension is not None:
                right.update(dict(newest.state.extension.counted))
    wrong = []
    for what, shards in before.items():
        if sum(shards) == right[what] or stores.sessions.counts(what) != shards:
            continue
        wrong.append(Counted(what, right[what], sum(shards)))
        if repair:
            guards = [SetShard(what, shard, shards[shard], part_of(shard, right[what])) for shard in range(SHARDS)]
            if stores.sessions.commit(guards) is not None:
                raise StoreError("names were created or ended meanwhile; run the recovery again, alone")
    return wrong
