"""What the operators of feature tables cost in one process.

    uv run python -m benchmarks.operators [--json]

* CPU µs per fold of each operator, for all time and in a window of an hour: a table with ten features of it, on a hot
  row whose windows are full, less what an event costs a table without features.
* Encoding, decoding and reading of four scalars in a full window, and of each operator in a full window.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import click

from benchmarks.events import START_MS
from headrace.features.pipeline.features import FeatureSet, FeatureSpec, State, check_operator
from headrace.features.pipeline.ops import CATALOGUE

TYPES = {"amount": "f64", "merchant": "str", "lat": "f64", "lon": "f64"}
FIELD_OF = {
    "any": {"field": "merchant"},
    "number": {"field": "amount"},
    "point": {"lat_field": "lat", "lon_field": "lon"},
}
PARAMS: dict[str, dict[str, Any]] = {
    "histogram": {"buckets": [10, 100, 1000]},
    "reservoir_sample": {"samples": 100},
    "burst_count": {"sub_window": "1m"},
    "first_seen_in_window": {"window": "1h"},
    **{op: {"n": 10} for op in ("time_since_last_n", "most_recent_n", "first_n", "last_n", "lag")},
    **{op: {"half_life": "10m"} for op in ("ewma", "ema", "ewvar", "ew_zscore", "decayed_sum", "decayed_count")},
}
COPIES = 10
EVENTS = 4_000
STEP_MS = 900  # an hour of 4,000 events
Folded = tuple[FeatureSet, State]


def row(number: int) -> dict[str, Any]:
    """Returns event `number`: an amount of cents, one of 500 merchants, a point."""
    spread = number * 2_654_435_761 % 1_000_003
    return {
        "amount": spread / 100,
        "merchant": f"merchant-{spread % 500}",
        "lat": spread % 90_000 / 1000,
        "lon": spread % 180_000 / 1000,
    }


def features(*asked: tuple[str, str | None]) -> FeatureSet:
    """Returns a table with a feature for each (operator, window)."""
    specs = []
    for number, (op, window) in enumerate(asked):
        params = {**FIELD_OF.get(CATALOGUE[op].reads, {}), **PARAMS.get(op, {})}
        if window:
            params["window"] = window
        specs.append(FeatureSpec(f"f{number}", f"f{number}", op, check_operator(op, params, TYPES)[1]))
    return FeatureSet(specs)


def fold_us(table: FeatureSet, rows: list[dict[str, Any]]) -> tuple[float, State]:
    """Returns CPU µs per event in the second of two hours, and the state."""
    state = table.new()
    for number, event in enumerate(rows):
        table.fold(state, event, START_MS + number * STEP_MS, 0, number)
    begun = time.process_time_ns()
    for number, event in enumerate(rows, len(rows)):
        table.fold(state, event, START_MS + number * STEP_MS, 0, number)
    return (time.process_time_ns() - begun) / 1000 / len(rows), state


def call_us(call: Callable[[], object]) -> float:
    """Returns CPU µs per call: the least of five rounds."""
    rounds = []
    for _ in range(5):
        begun = time.process_time_ns()
        for _ in range(50):
            call()
        rounds.append((time.process_time_ns() - begun) / 1000 / 50)
    return min(rounds)


def codec(table: FeatureSet, state: State) -> dict[str, float]:
    """Returns what a row's state costs outside of folds."""
    data = table.encode(state)
    return {
        "bytes": len(data),
        "encode_us": call_us(lambda: table.encode(state)),
        "decode_us": call_us(lambda: table.decode(data)),
        "read_us": call_us(lambda: table.read(state, state.stamp_ms)),
    }


def measure() -> dict[str, dict[str, float]]:
    """Returns the costs of each operator, in a window where the name ends in " 1h"."""
    rows = [row(number) for number in range(EVENTS)]
    bare = fold_us(features(), rows)[0]
    found: dict[str, dict[str, float]] = {"event without features": {"fold_us": bare}}
    for op, operator in CATALOGUE.items():
        for window in (None, "1h") if operator.windowed else (None,):
            cost, _ = fold_us(features(*[(op, window)] * COPIES), rows)
            single = features((op, window))
            _, state = fold_us(single, rows)
            found[f"{op} {window}" if window else op] = {
                "fold_us": (cost - bare) / COPIES,
                **codec(single, state),
            }
    scalars = features(*[(op, "1h") for op in ("count", "sum", "min", "max")])
    found["four scalars 1h"] = codec(scalars, fold_us(scalars, rows)[1])
    return found


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def main(as_json: bool) -> None:
    """Measures and prints."""
    found = measure()
    if as_json:
        click.echo(json.dumps(found))
        return
    columns = ("fold_us", "bytes", "encode_us", "decode_us", "read_us")
    click.echo(f"{'':28}" + "".join(f"{column:>12}" for column in columns))
    for name, costs in found.items():
        cells = (f"{costs[column]:12.2f}" if column in costs else " " * 12 for column in columns)
        click.echo(f"{name:28}" + "".join(cells))


if __name__ == "__main__":
    main()
