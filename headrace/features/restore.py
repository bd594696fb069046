"""After a disaster: lanes have the pipelines that their registry says, and the relay hears of lanes and registries again.
No writer may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.features.define import follower
from headrace.features.documents import generation_of, read_registry
from headrace.features.register import Registrations
from headrace.features.values import (
    FEATURES,
    FOLD,
    REGISTER,
    is_registry,
    lane,
    lane_state_of,
    registry_name,
    registry_state_of,
)
from headrace.log.seam import which_of
from headrace.log.stores import Stores
from headrace.tables.catalog import Row
from headrace.wal.state import incarnation_of

_PAGE = 500


def restore(stores: Stores, repair: bool) -> list[str]:
    """Returns what is wrong with feature tables, and sets it right with `repair`. Reads the newest entry of every lane.
    Raises StoreError.
    """
    return list(_run(stores, Registrations(stores), repair))


def _run(stores: Stores, log: Registrations, repair: bool) -> Iterator[str]:
    versions: dict[str, int] = {}  # of the pipeline that an event's lanes must have
    namespaces: set[str] = set()
    recovered: set[str] = set()  # of which the registry is an older one, and lanes may have later pipelines
    lanes: dict[str, list[int]] = {}
    for row in living_rows(stores):
        for one in row.logs:
            newest = stores.wal.newest(one.log_id)
            if newest is None or newest.state.ended:
                continue
            kind = REGISTER if is_registry(row.name) else FOLD
            if stores.follows.get(one.log_id, kind, "-") is None:
                yield f"{kind} without a follower: log={one.config.title}"
                if repair:
                    log.follow(which_of(row.name, one.config.role), follower(one.config, one.log_id, kind))
            if is_registry(row.name):
                registry = log.definition_of(log.head(row.name)).derive(read_registry)
                namespace = row.name.removesuffix(registry_name(""))
                namespaces.add(namespace)
                if registry_state_of(newest.state).incarnation != incarnation_of(one.config, newest.state):
                    recovered.add(namespace)
                versions |= {f"{namespace}/{event}": version for event, version in registry.touched.items()}
            else:
                lanes.setdefault(row.name, []).append(lane_state_of(newest.state).registered[1])
    lost = {namespace: list(_without_rows(log, namespace)) for namespace in namespaces}
    others = {
        name.rpartition("/")[0]: name
        for name in {*versions, *lanes}
        if name not in lanes or set(lanes[name]) != {versions.get(name)}
    }
    for namespace in sorted(namespaces):
        found = [f"rows of a table that was back-filled are gone: table={namespace}/{one}" for one in lost[namespace]]
        if namespace in recovered:
            found.append(f"registry was recovered, and lanes may have later pipelines: namespace={namespace}")
        elif namespace in others:
            found.append(f"lanes with another pipeline than their registry says: event={others[namespace]}")
        yield from found
        if repair and found:
            log.realign(namespace, lost[namespace])


def _without_rows(log: Registrations, namespace: str) -> Iterator[str]:
    """Yields the tables whose rows the folder can't compute again, since they were back-filled."""
    registry = log.registry(namespace).registry
    for table, state in registry.tables.items():
        event = registry.root_of(table)
        if not state.is_backfilled or event is None:
            continue
        for number in range(event.lanes):
            head = log.head(lane(namespace, event.name, number))
            mark = log.mark_of(head)
            if mark is None or generation_of(table, state.generation, head) not in mark.generations:
                yield table
                break


def living_rows(stores: Stores) -> Iterator[Row]:
    """Yields the rows of lanes and registries that are not damaged: others are reported for their logs."""
    after = ""
    while True:
        page = stores.catalog.every(FEATURES, after=after, limit=_PAGE)
        yield from (row for row in page if isinstance(row, Row) and not row.ended)
        if len(page) < _PAGE:
            return
        after = page[-1].name
