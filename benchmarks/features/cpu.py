"""What feature tables cost in one process: events, operators, whole passes of the folder, and the writes of rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import orjson

from benchmarks import operators
from benchmarks.features.events import EVENT, MIXED, SCALARS, data
from functions.folder.context import open_context
from headrace.features.pipeline.compiled import compile_pipeline
from headrace.features.pipeline.ops import CATALOGUE
from headrace.features.pipeline.registry import pipeline_of
from headrace.features.values import lane
from headrace.features.verbs import Features
from tests.support.emulated_cloud import emulated_cloud
from tests.unit.features.pipeline.documents import registered
from tests.unit.features.world import NS, World

PAGE = 1_000
HOT_USERS = 10
PAGES = 100
ROWS = 2_000

Row = dict[str, Any]


def each_operator() -> Iterator[Row]:
    """Yields for each operator the CPU of a fold, for all time and in a window."""
    found = operators.measure()
    for op in CATALOGUE:
        windowed = found.get(f"{op} 1h")
        us = {"us": round(found[op]["fold_us"], 2), "us_1h": round(windowed["fold_us"], 2) if windowed else ""}
        yield {"what": op, **us}


def event_us() -> Iterator[Row]:
    """Yields the CPU of an event before it is folded."""
    pipeline = compile_pipeline(pipeline_of(registered(EVENT, MIXED), "Tx"))
    rows = [data(number) for number in range(20_000)]
    texts = [orjson.dumps(row) for row in rows]
    table = pipeline.tables["U"]
    checked = [pipeline.check(row) for row in rows]
    steps: dict[str, Callable[[], object]] = {
        "parse": lambda: [orjson.loads(text) for text in texts],
        "check": lambda: [pipeline.check(row) for row in rows],
        "find its row's key": lambda: [table.entity_of(row) for row in checked],
    }
    for name, step in steps.items():
        yield {"what": name, "us": round(min(_cpu_s(step) for _ in range(5)) * 1e6 / len(rows), 2)}


def hot_rows(name: str, node: Row) -> Row:
    """Returns the CPU of whole passes of the folder over events of ten users, in slices of 1,000: reading the log, parsing,
    checking, folding, and writing the rows to memory.
    """
    world = World(EVENT, node)
    taken = 0.0
    for page in range(PAGES):
        world.clock.advance(60)
        events = [data(number, HOT_USERS) for number in range(page * PAGE, (page + 1) * PAGE)]
        world.api.push(NS, "Tx", events)
        cpu_s = _cpu_s(world.fold)
        taken += cpu_s if page >= PAGES // 2 else 0.0  # its windows are full then
    us = taken * 1e6 / (PAGES - PAGES // 2) / PAGE
    return {"what": f"event on a hot row, {name}", "us": round(us, 2), "per_s": round(1e6 / us)}


def row_writes() -> Iterator[Row]:
    """Yields the CPU and the time of a pass that writes 2,000 rows, each with one event, to an emulated DynamoDB in another
    process: a first pass, which creates them, and one that replaces them from memory.
    """
    with emulated_cloud() as cloud:
        os.environ.update(cloud.environment)
        folder = open_context()
        api = Features(folder.stores)
        api.register(NS, {"nodes": [EVENT, MIXED]})
        for what in ("row that is created", "row that is replaced"):
            for first in range(0, ROWS, PAGE):
                events = [data(number) | {"user": f"user-{number}"} for number in range(first, first + PAGE)]
                api.push(NS, "Tx", events)
            began = time.perf_counter()
            until = folder.stores.clock.monotonic() + 60
            cpu_s = _cpu_s(partial(folder.folder.fold, lane(NS, "Tx", 0), until))
            taken = time.perf_counter() - began
            us = cpu_s * 1e6 / ROWS
            yield {
                "what": f"{what}, with the client",
                "us": round(us, 1),
                "per_s": round(1e6 / us),
                "wall_per_s": round(ROWS / taken),
            }


def measure() -> Iterator[Row]:
    """Yields the row of each of these."""
    yield from event_us()
    yield hot_rows("4 scalars in a window", SCALARS)
    yield hot_rows("8 features", MIXED)
    yield from row_writes()
    yield from each_operator()


def _cpu_s(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began
