"""Figures that docs/benchmarks.md prints, and the metrics that docs/operations.md names: read, not repeated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
_METRIC = re.compile(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)*)`")


def figures() -> dict[str, Any]:
    """CPU seconds, bytes of an index, GETs and CPU of each class of query, names of metrics."""
    page = (DOCS / "benchmarks.md").read_text()
    build, compact = (_row(page, name) for name in ("28 segments into 2 runs", "these merged into 1 run"))
    return {
        "append_cpu_ms": float(_row(page, "CPU of an append, ASGI call to answer")[1].split(" ")[0]),
        "seal_mb_per_cpu_s": float(_row(page, "seal, MB of record data per CPU second")[1]),
        "replay_mb_per_cpu_s": float(_row(page, "replay of segments, MB per CPU second")[1]),
        "index": {
            "events": 1_000_000,
            "event_bytes": int(_found(page, r"\((\d+) bytes of JSON each")),
            "build_cpu_s": float(build[1]),
            "compact_cpu_s": float(compact[1]),
            "bytes": round(float(compact[-1]) * 1e6),
        },
        "queries": dict(_queries(page)),
        "metrics": len(set(_METRIC.findall(_section((DOCS / "operations.md").read_text(), "## Metrics")))),
    }


def _queries(page: str) -> list[tuple[str, dict[str, float]]]:
    """By question: wall and CPU ms, GETs and bytes with runs opened; wall ms of a cold process where it was measured."""
    lines = iter(page[page.index("| question | cold, 1 run |") :].splitlines()[2:])
    found = []
    for line in lines:
        cells = _cells(line)
        if not cells:
            break
        wall, cpu = cells[2].split(" / ")
        gets, kilobytes = cells[3].split(" / ")
        one = {
            "wall_ms": float(wall),
            "cpu_ms": float(cpu),
            "gets": int(gets),
            "bytes": int(kilobytes.replace(",", "")) * 1000,
        }
        found.append((cells[0], one | ({"cold_wall_ms": float(cells[1])} if cells[1] else {})))
    return found


def _row(page: str, begins: str) -> list[str]:
    line = next(line for line in page.splitlines() if line.startswith(f"| {begins}"))
    return _cells(line)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []


def _section(page: str, title: str) -> str:
    return page.partition(f"\n{title}\n")[2].partition("\n## ")[0]


def _found(page: str, pattern: str) -> str:
    match = re.search(pattern, page)
    assert match is not None, pattern
    return match[1]
