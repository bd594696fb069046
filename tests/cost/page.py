"""The tables of docs/cost.md, as the command makes them: between `<!-- NAME -->` and `<!-- end -->` each."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from cli.tables import Column
from operators.cost import show
from operators.cost.charges import Estimate
from operators.cost.counts import counted
from operators.cost.model import bill, jobs
from operators.cost.prices import standard
from operators.cost.workload import Workload

PAGE = Path(__file__).parents[2] / "docs" / "cost.md"
_BLOCK = re.compile(r"(<!-- (?!end)([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_AMONG = [
    ("no requests", Workload()),
    ("100 k single records of 500 B", Workload(appends=1e5)),
    ("1 M single records of 500 B", Workload(appends=1e6)),
    ("100 M single records of 500 B", Workload(appends=1e8)),
    ("100 M records in batches of 10", Workload(appends=1e7, batch=10)),
    ("100 M records in batches of 100", Workload(appends=1e6, batch=100)),
    ("100 M records in batches of 1,000", Workload(appends=1e5, batch=1000)),
    ("10 G records in batches of 1,000", Workload(appends=1e7, batch=1000)),
    ("10 G records in batches of 1,000, kept a year", Workload(appends=1e7, batch=1000, retention_days=365)),
]


def estimated(work: Workload) -> Estimate:
    """With the counts and prices that come with Headrace."""
    return Estimate(work, counted(), standard())


def tables() -> dict[str, str]:
    """Returns each table by its name."""
    example = estimated(Workload(appends=1e6, batch=100, searches=1e5, indexed=True))
    plain = estimated(Workload())
    return {
        "standing": show.markdown(show.bill_sheet(plain)),
        "standing dev": show.markdown(show.bill_sheet(estimated(Workload(environment="dev")))),
        "appends": show.markdown(show.append_sheet(plain)),
        "units": show.markdown(show.unit_sheet(plain)),
        "reactions": show.markdown(show.reaction_sheet(plain)),
        "operations": show.markdown(show.operation_sheet(plain)),
        "searches": show.markdown(show.search_sheet(plain)),
        "example": show.markdown(show.bill_sheet(example)),
        "break even": show.markdown(show.comparison_sheet(example)),
        "peers": _peers(),
        "spill": _spill(),
        "knobs": _knobs(example.work),
        "assumptions": "\n".join(f"- {line}" for line in show.assumptions(plain)),
        "prices": show.markdown(show.price_sheet(plain.prices)),
    }


def rendered(page: str) -> str:
    """Returns the page with the tables as they are now."""
    made = tables()
    return _BLOCK.sub(lambda found: f"{found[1]}\n{made[found[2]]}\n\n{found[3]}", page)


def names(page: str) -> set[str]:
    """Of the tables that a page has."""
    return {found[2] for found in _BLOCK.finditer(page)}


def _peers() -> str:
    rows = []
    for what, work in _AMONG:
        estimate = estimated(work)
        quiet = replace(estimate, work=replace(work, metrics_s=0))
        sums = [bill(estimate).usd, bill(quiet).usd, show.kinesis(estimate).usd, show.self_hosted(estimate).usd]
        rows.append([what, *(f"**{show.money(usd)}**" if usd == min(sums) else show.money(usd) for usd in sums)])
    columns = [
        Column("a month"),
        Column("Headrace", True),
        Column("without its metrics", True),
        Column("Kinesis", True),
        Column("self-hosted", True),
    ]
    return show.markdown(show.Sheet("", columns, rows))


def _spill() -> str:
    """Returns a table of what a million appends cost, with payloads between 1 and 32 KB compressed, by the size above
    which payloads are spilled.
    """
    sizes = (32 * 1024, 8 * 1024, 4 * 1024)
    rows: list[list[object]] = []
    for batch in (5, 10, 30, 100, 300):
        row: list[object] = [batch, f"{counted().stored(500 * batch) / 1000:,.1f}"]
        for spill in sizes:
            at, none = (estimated(Workload(appends=n, batch=batch, spill_bytes=spill, readers=0)) for n in (2e6, 1e6))
            row.append(show.money(bill(at).usd - bill(none).usd))
        rows.append(row)
    columns = [Column("records of 500 B", True), Column("kB compressed", True)]
    columns += [Column(f"USD per M, spilled above {size // 1024} KiB", True) for size in sizes]
    return show.markdown(show.Sheet("", columns, rows))


def _knobs(work: Workload) -> str:
    """Returns a table of what the example's month costs with other settings."""
    changes: list[tuple[str, dict[str, float]]] = [
        ("as deployed", {}),
        ("`headrace:index_age_ms=60000`, a minute", {"index_age_s": 60}),
        ("`headrace:index_age_ms=3600000`, an hour", {"index_age_s": 3600}),
        ("`headrace:metrics_interval_ms=10000`", {"metrics_s": 10}),
        ("`headrace:metrics_interval_ms=0`", {"metrics_s": 0}),
        ("`headrace:spill_bytes=4096`", {"spill_bytes": 4096}),
        ("an hour, no metrics, 4,096", {"index_age_s": 3600, "metrics_s": 0, "spill_bytes": 4096}),
    ]
    rows = []
    for what, fields in changes:
        estimate = estimated(replace(work, **fields))  # type: ignore[arg-type]
        parts = bill(estimate).parts()
        rows.append(
            [
                what,
                show.money(bill(estimate).usd),
                show.money(parts.get("index", 0)),
                show.amount(jobs(estimate).runs),
            ]
        )
    columns = [Column("setting"), Column("USD", True), Column("of it: index", True), Column("job runs", True)]
    return show.markdown(show.Sheet("", columns, rows))
