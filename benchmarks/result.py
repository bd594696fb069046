"""What a load measured, and how it is shown."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import orjson

COLUMNS = ("load", "events", "seconds", "events_per_s", "mb_per_s", "p50_ms", "p95_ms", "p99_ms", "max_ms", "busy")


@dataclass(frozen=True)
class Result:
    """One load. `latencies_ms` has one entry for each request, or each event received in live loads."""

    load: str
    events: int
    payload_bytes: int
    seconds: float
    latencies_ms: Sequence[float] = field(repr=False)
    busy: int = 0
    notes: dict[str, Any] = field(default_factory=dict)
    paced: bool = False
    """The load waits between events, so its rate says nothing about the server."""

    def row(self) -> dict[str, Any]:
        """Rates, and latencies by rank (nearest rank, no interpolation)."""
        facts = {key: value for key, value in asdict(self).items() if key != "latencies_ms"}
        return {
            **facts,
            "seconds": round(self.seconds, 3),
            "events_per_s": "" if self.paced or not self.seconds else round(self.events / self.seconds, 1),
            "mb_per_s": "" if self.paced or not self.seconds else round(self.payload_bytes / 1e6 / self.seconds, 2),
            "p50_ms": percentile(self.latencies_ms, 50),
            "p95_ms": percentile(self.latencies_ms, 95),
            "p99_ms": percentile(self.latencies_ms, 99),
            "max_ms": percentile(self.latencies_ms, 100),
        }


def percentile(values: Sequence[float], rank: float) -> float:
    """Returns the smallest value that at least `rank` percent of the values do not exceed; 0 without values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return round(ordered[max(0, math.ceil(len(ordered) * rank / 100) - 1)], 2)


def machine() -> dict[str, Any]:
    """Describes the machine that this ran on: without it, figures mean nothing."""
    return {
        "cpus": os.cpu_count(),
        "load_average_1m": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def markdown(rows: Sequence[dict[str, Any]], columns: Sequence[str] = COLUMNS) -> str:
    """Returns the rows as a Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "|".join(["---"] * len(columns)) + "|"]
    lines += ["| " + " | ".join(str(row.get(column, "")) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def file_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options with the files that `publish` writes."""
    a_file = click.Path(dir_okay=False, path_type=Path)
    command = click.option("--json", "json_file", type=a_file, help="Write the figures.")(command)
    return click.option("--markdown", "markdown_file", type=a_file, help="Write the table.")(command)


def publish(
    rows: Sequence[dict[str, Any]],
    columns: Sequence[str],
    before: dict[str, Any],
    markdown_file: Path | None,
    json_file: Path | None,
    **more: Any,
) -> None:
    """Prints the rows as a Markdown table, and writes the files that were asked for. `before` describes the machine before
    the loads; `more` is for the file of figures, whose `results` are the rows unless it has others.
    """
    table = markdown(rows, columns)
    click.echo(table)
    if json_file:
        document = {"machine_before": before, "machine_after": machine(), "results": rows, **more}
        json_file.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    if markdown_file:
        markdown_file.write_text(table + "\n")
