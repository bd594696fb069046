"""Indexes a day of request logs and asks questions of them.

    uv run python -m benchmarks.search                     a million events, every mode, both levels of runs
    uv run python -m benchmarks.search --peer              and the same events and questions at the npm peer
    uv run python -m benchmarks.search --growth            0.1, 1 and 5 million events, compacted

Prints CPU seconds and bytes of the index, then each question: a cold process, runs known, data cached. GETs of the bucket
take 15 ms each; one process with one core asks.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.result import machine, markdown
from benchmarks.search import peer
from benchmarks.search.build import Built, build
from benchmarks.search.events import blocks
from benchmarks.search.load import fill
from benchmarks.search.queries import QUESTIONS, parameters
from benchmarks.search.range_server import served

LATENCY_S = 0.015
GROWTH = (100_000, 1_000_000, 5_000_000)
COLD = ("exact requestId", "service AND status>=500, newest", "phrase, newest", "aggregate 1m x service, 1 h")
_SAMPLES = 50
_PEER_TURNS = 9
_PEER_PATIENCE_S = 1_500.0

Table = list[dict[str, Any]]


@contextmanager
def _bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.advance(task, done)


def _ask(
    root: Path, endpoint: str, samples: Path, mode: str, turns: int, question: str | None = None
) -> dict[str, Any]:
    """Runs the client in a process of its own, on one core."""
    command = ["taskset", "-c", "1", sys.executable, "-m", "benchmarks.search.client", str(root)]
    command += ["--endpoint", endpoint, "--mode", mode, "--turns", str(turns), "--samples", str(samples)]
    if question is not None:
        command += ["--question", question]
    # With byte code, as a Lambda has it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    answer: dict[str, Any] = orjson.loads(done.stdout)
    return answer


def _built_rows(level: str, built: list[Built], events: int) -> Table:
    rows: Table = []
    for one in built:
        sizes = {family: round(size / 1e6, 2) for family, size in sorted(one.sizes.items())}
        rows.append(
            {
                "runs": f"{len(one.runs)} x {level}",
                "CPU s": round(one.spent.cpu_s, 1),
                "wall s": round(one.spent.wall_s, 1),
                "peak MB": round(one.spent.peak_bytes / 1e6),
                **sizes,
                "all MB": round(sum(one.sizes.values()) / 1e6, 2),
                "bytes/event": round(sum(one.sizes.values()) / events, 1),
            }
        )
    return rows


def _question_rows(root: Path, samples: Path, turns: int, modes: tuple[str, ...]) -> Table:
    rows = {question.name: {"question": question.name} for question in QUESTIONS}
    with served(root, LATENCY_S) as endpoint:
        for mode in modes:
            if mode == "cold":
                for name in COLD:
                    found = [_ask(root, endpoint, samples, mode, 1, name)[name] for _ in range(3)]
                    rows[name]["cold ms"] = statistics.median(one["wall_ms"] for one in found)
                continue
            for name, one in _ask(root, endpoint, samples, mode, turns).items():
                rows[name] |= {
                    f"{mode} ms": one["wall_ms"],
                    f"{mode} CPU": one["cpu_ms"],
                    f"{mode} GETs": one["gets"],
                    f"{mode} KB": round(one["bytes"] / 1000),
                }
                if one["failed"]:
                    rows[name][f"{mode} failed"] = str(one["failed"])
    return list(rows.values())


def _peer_rows(events: int) -> tuple[Table, dict[str, Any]]:
    with peer.running() as running:
        with _bar("peer: appending", events) as progress:
            loaded = running.load(blocks(events), progress, _PEER_PATIENCE_S)
        first = next(iter(blocks(events)))
        samples = [orjson.loads(data) for data in first[:: len(first) // _SAMPLES]]
        rows: Table = []
        for question in QUESTIONS:
            turns = [running.ask(question.request(parameters(samples, turn))) for turn in range(_PEER_TURNS)]
            whole = sum(done for _, done in turns)
            p50 = round(statistics.median(ms for ms, _ in turns), 1)
            rows.append({"question": question.name, "peer ms": p50, "peer whole": f"{whole}/{len(turns)}"})
    return rows, loaded._asdict()


def _measure(
    events: int, turns: int, modes: tuple[str, ...], levels: tuple[str, ...], scratch: Path
) -> dict[str, Any]:
    root = scratch / str(events)
    root.mkdir()
    first: list[bytes] = []

    def kept() -> Iterator[list[bytes]]:
        for block in blocks(events):
            if not first:
                first.extend(block[:: max(1, len(block) // _SAMPLES)])
            yield block

    with _bar(f"{events:,} events: appending and sealing", events) as progress:
        log_id = fill(root, kept(), progress)
    samples = scratch / "samples.json"
    samples.write_bytes(orjson.dumps([orjson.loads(data) for data in first]))
    found: dict[str, Any] = {"events": events, "index": [], "questions": {}}
    for level in ("L0", "compacted"):
        click.echo(f"{events:,} events: indexing, {level} …", err=True)
        built = build(root, log_id, level)
        found["index"] += _built_rows(level, built, events)
        if level in levels:
            click.echo(f"{events:,} events: asking, {level} …", err=True)
            found["questions"][level] = _question_rows(root, samples, turns, modes)
    return found


def _show(found: dict[str, Any]) -> None:
    click.echo(f"\n### {found['events']:,} events\n\n{markdown(found['index'], list(found['index'][0]))}")
    for level, rows in found["questions"].items():
        columns = list(dict.fromkeys(column for row in rows for column in row))
        click.echo(f"\n{level}\n\n{markdown(rows, columns)}")


@click.command(help=__doc__)
@click.option("--events", default=1_000_000, show_default=True)
@click.option("--turns", default=9, show_default=True, help="Requests of each question; the median counts.")
@click.option("--peer", "with_peer", is_flag=True, help=f"Also ask {peer.NAME}, after it has indexed (minutes).")
@click.option("--growth", is_flag=True, help="The same questions at several sizes, compacted, runs known.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures.")
def main(events: int, turns: int, with_peer: bool, growth: bool, json_file: Path | None) -> None:
    """See the module's text."""
    figures: dict[str, Any] = {"machine": machine(), "sizes": []}
    with tempfile.TemporaryDirectory(prefix="headrace-search-") as scratch:
        for size in GROWTH if growth else (events,):
            modes = ("opened", "data") if growth else ("cold", "opened", "data")
            levels = ("compacted",) if growth else ("L0", "compacted")
            figures["sizes"].append(_measure(size, turns, modes, levels, Path(scratch)))
            _show(figures["sizes"][-1])
    if with_peer:
        rows, loaded = _peer_rows(events)
        figures["peer"] = {"questions": rows, "loaded": loaded}
        click.echo(f"\n{peer.NAME}: {loaded}\n\n{markdown(rows, list(rows[0]))}")
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
