"""Formats bills, comparisons and prices as tables, for the command and for the documentation. Does no I/O."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cli.tables import Column
from operators.cost import charges, units
from operators.cost.charges import Estimate
from operators.cost.model import bill, jobs
from operators.cost.prices import Bill, Ledger, Prices
from operators.cost.workload import DAYS, GB, HOURS, SECONDS, Workload


@dataclass(frozen=True)
class Sheet:
    """A table with a title."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]


def money(usd: float) -> str:
    """Formats US dollars with cents, and with more digits below ten cents."""
    return f"{usd:,.2f}" if usd >= 0.1 or not usd else f"{usd:.4f}"


def amount(quantity: float) -> str:
    """Formats a quantity for people: `12.3 M`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if quantity >= size:
            return f"{quantity / size:,.1f} {unit}"
    return f"{quantity:,.2f}".rstrip("0").rstrip(".")


def bill_sheet(estimate: Estimate) -> Sheet:
    """Returns the table of a bill: each line with its sum and share, and how much of it is paid without any request."""
    drawn = bill(estimate)
    empty = bill(Estimate(estimate.work.idle(), estimate.counts, estimate.prices, estimate.assumed))
    rows: list[list[object]] = []
    for line in drawn.lines:
        idle = empty.of(line.part, line.price)
        share = line.usd / drawn.usd if drawn.usd else 0
        unit = estimate.prices[line.price].unit
        quantity, sums = amount(line.quantity), (money(line.usd), f"{share:.1%}", money(idle) if idle else "0")
        rows.append([line.part, line.price, quantity, unit, *sums])
    rows.append(["sum", None, None, None, money(drawn.usd), "100.0%" if drawn.usd else None, money(empty.usd)])
    return Sheet(
        "Headrace, US dollars a month",
        [
            Column("for"),
            Column("price"),
            Column("quantity", True),
            Column("of"),
            Column("USD", True),
            Column("share", True),
            Column("idle", True),
        ],
        rows,
    )


def alone(estimate: Estimate) -> Estimate:
    """Returns the estimate of the streams with their followers alone: the compared systems have neither searches and
    indexes, nor queues, routers, watches, sockets, webhooks and feature tables.
    """
    work, followers = estimate.work, estimate.work.followers
    return replace(estimate, work=replace(work.alone(), followers=followers, indexed=False))


def comparison(estimate: Estimate) -> list[tuple[Bill, Peer | None]]:
    """Returns Headrace's bill without searches and indexes, and the bills of the compared systems, cheapest first; each
    with the function that computes it, None for Headrace.
    """
    drawn: list[tuple[Bill, Peer | None]] = [(bill(alone(estimate)), None)]
    drawn += [(peer(estimate), peer) for peer in (kinesis, self_hosted)]
    return sorted(drawn, key=lambda found: found[0].usd)


def comparison_sheet(estimate: Estimate) -> Sheet:
    """Computes the monthly bills of Headrace, Kinesis and self-hosted servers, and returns the table that compares
    them: sums, parts, and for each other system the appends per month and the batch size at which Headrace costs as
    much.
    """
    rows: list[list[object]] = []
    for drawn, peer in comparison(estimate):
        parts = ", ".join(f"{part} {money(usd)}" for part, usd in drawn.parts().items() if usd >= 0.005)
        rows.append([drawn.name, money(drawn.usd), parts, break_even(alone(estimate), peer) if peer else None])
    return Sheet(
        "The same elsewhere, US dollars a month, for the streams alone, since no other one searches them",
        [Column("who"), Column("USD", True), Column("parts"), Column("Headrace costs as much at")],
        rows,
    )


def break_even(estimate: Estimate, peer: Peer) -> str:
    """Returns a sentence that says at how many appends per month, and at which batch size, Headrace and the other
    system cost the same.
    """
    if not estimate.work.appends:
        return "any traffic: ask with --appends-per-month"
    found = [
        f"{amount(appends)} appends ({'more expensive' if costs_more else 'cheaper'} above)"
        for appends, costs_more in crossings(estimate, peer)
    ]
    batch = least_batch(estimate, peer)
    found.append(
        f"batches of {batch:,} of the same records" if batch else "no batch of up to 3,000 of the same records"
    )
    return "; ".join(found)


def append_sheet(estimate: Estimate) -> Sheet:
    """Returns the table of append prices by record size and batch."""
    rows = [
        [
            f"{one.record_bytes:,}",
            f"{one.batch:,}",
            f"1 + {estimate.counts.stored(one.record_bytes * one.batch) / 1000:,.0f} kB PUT"
            if one.is_spilled
            else one.write_units,
            money(one.million_appends),
            money(one.million_records),
            money(one.gb),
        ]
        for one in units.appends(estimate)
    ]
    titles = ("record bytes", "batch", "write units", "USD per M appends", "USD per M records", "USD per GB")
    return Sheet("Appends: written, sealed, trimmed", [Column(title, True) for title in titles], rows)


def unit_sheet(estimate: Estimate) -> Sheet:
    """Returns the table of prices of everything but appends."""
    rows = [[one.of, money(one.usd)] for one in units.others(estimate)]
    return Sheet("Kept, read, indexed", [Column("one more"), Column("USD", True)], rows)


def reaction_sheet(estimate: Estimate) -> Sheet:
    """Returns the table of prices of what queues, routers, watches, sockets, webhooks and feature tables do."""
    rows = [[one.of, money(one.usd)] for one in units.reactions(estimate)]
    title = "Topics, queues, what follows an append, and feature tables"
    return Sheet(title, [Column("one more"), Column("USD", True)], rows)


def operation_sheet(estimate: Estimate) -> Sheet:
    """Returns the table of what the operations of topics, queues, followers and feature tables spend: calls and units, and
    the US dollars of a million, without requests and functions.
    """
    rows = []
    for name, spent in estimate.counts.operations.items():
        ledger = Ledger(estimate.prices)
        charges.stores(ledger, "", spent, 1e6)
        calls = ", ".join(f"{count:g} {call}" for call, count in spent.items() if call[0].isupper())
        counts = [f"{spent.get(unit, 0):g}" for unit in ("write_units", "read_units")]
        rows.append([name, calls, *counts, money(ledger.bill("").usd)])
    columns = [Column("operation"), Column("calls of DynamoDB")]
    columns += [Column(title, True) for title in ("write units", "read units", "USD per M, tables alone")]
    return Sheet("Topics, queues, what follows an append, and feature tables, 500 bytes each", columns, rows)


def search_sheet(estimate: Estimate) -> Sheet:
    """Returns the table of prices of a million searches, by query class."""
    rows = [
        [name, estimate.counts.printed.queries[name].gets, money(opened), money(cold) if cold is not None else None]
        for name, opened, cold in units.searches(estimate)
    ]
    return Sheet(
        "A million searches of a million events",
        [Column("class"), Column("GETs", True), Column("USD, opened", True), Column("USD, cold process", True)],
        rows,
    )


def price_sheet(prices: Prices) -> Sheet:
    """Returns the price table as a table of text."""
    rows = [
        [name, f"{price.usd:.10f}".rstrip("0").rstrip("."), f"{price.per:,}", price.unit, price.as_of, price.source]
        for name, price in prices.entries.items()
    ]
    columns = [
        Column("price"),
        Column("USD", True),
        Column("per", True),
        Column("unit"),
        Column("as of"),
        Column("source"),
    ]
    return Sheet(f"Prices, {prices.region}", columns, rows)


def assumptions(estimate: Estimate) -> Iterator[str]:
    """Yields sentences about what was assumed instead of counted: first for Headrace, then for the compared systems."""
    yield "assumed: " + ", ".join(f"{name}={value:g}" for name, value in asdict(estimate.assumed).items())
    for drawn, peer in comparison(estimate):
        if peer is not None:
            yield from (f"assumed of {drawn.name}: {note}" for note in drawn.notes)


def document(estimate: Estimate) -> dict[str, Any]:
    """Returns the whole estimate as a JSON document, for scripts."""
    drawn = bill(estimate)
    empty = bill(Estimate(estimate.work.idle(), estimate.counts, estimate.prices, estimate.assumed))
    found: dict[str, Any] = {
        "region": estimate.prices.region,
        "prices_as_of": estimate.prices.oldest,
        "workload": asdict(estimate.work),
        "assumptions": asdict(estimate.assumed),
        "index_jobs": asdict(jobs(estimate)),
        "usd": drawn.usd,
        "streams_alone_usd": bill(alone(estimate)).usd,
        "idle_usd": empty.usd,
        "lines": [asdict(line) | {"idle_usd": empty.of(line.part, line.price)} for line in drawn.lines],
        "peers": {},
    }
    for other, peer in comparison(estimate):
        if peer is not None:
            found["peers"][other.name] = {
                "usd": other.usd,
                "parts": other.parts(),
                "notes": other.notes,
                "break_even": [
                    {"appends": appends, "headrace_costs_more_above": costs_more}
                    for appends, costs_more in (crossings(alone(estimate), peer) if estimate.work.appends else ())
                ],
                "least_batch": least_batch(alone(estimate), peer) if estimate.work.appends else None,
            }
    return found


def markdown(sheet: Sheet) -> str:
    """Formats a table as Markdown for the documentation."""
    head = "| " + " | ".join(column.title for column in sheet.columns) + " |"
    line = "|" + "|".join("---:" if column.is_number else "---" for column in sheet.columns) + "|"
    rows = ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in sheet.rows]
    return "\n".join([head, line, *rows])


_KIB = 1024
_LONGEST_DAYS = 365
_SEGMENT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class SelfHosted:
    """Assumptions about self-hosted servers.

    Attributes:
        servers: the least number: one that serves and one to take over.
        appends_s, bytes_s: what a server can take per second (docs/benchmarks.md, on disk); half of it is kept in
            reserve.
        disk_gb: disk of each server.
    """

    servers: int = 2
    appends_s: float = 350
    bytes_s: float = 39e6
    disk_gb: float = 100


def kinesis(estimate: Estimate) -> Bill:
    """Computes the bill of one Kinesis stream on demand. A batch is put as one aggregated record; a record is rounded
    up to 1 KB.
    """
    work, ledger = estimate.work, Ledger(estimate.prices)
    billed_gb = work.appends * math.ceil(work.payload_bytes / _KIB) * _KIB / GB
    ledger.add("stream", "kinesis.stream", HOURS)
    ledger.add("data in", "kinesis.data_in", billed_gb)
    ledger.add("data out", "kinesis.data_out", billed_gb * work.readers + work.replayed_gb)
    days = min(work.retention_days, _LONGEST_DAYS)
    ledger.add("keep", "kinesis.retention_week", billed_gb * max(0.0, min(days, 7) - 1) / DAYS)
    ledger.add("keep", "kinesis.retention_year", billed_gb * max(0.0, days - 7) / DAYS)
    notes = ["one stream, a batch as one aggregated record, readers that share throughput"]
    notes += ["no search, no HTTP to clients, no exactly-once by producer id: what gives these is not in the sum"]
    if work.retention_days > _LONGEST_DAYS:
        notes.append(f"keeps {_LONGEST_DAYS} days at most")
    return ledger.bill("kinesis", tuple(notes))


def self_hosted(estimate: Estimate, host: SelfHosted = SelfHosted()) -> Bill:
    """Computes the bill of self-hosted servers with disks, whose older data is kept in S3, compressed as our segments
    are.
    """
    work, ledger = estimate.work, Ledger(estimate.prices)
    pairs = max(
        work.appends / SECONDS / host.appends_s,
        work.gb * GB / SECONDS / host.bytes_s,
        1.0,
    )
    servers = math.ceil(pairs) * host.servers
    ledger.add("servers", "ec2.server", servers * HOURS)
    ledger.add("disks", "ebs.storage", servers * host.disk_gb)
    ledger.add("keep", "s3.storage", work.kept_gb * estimate.counts.segment_ratio)
    ledger.add("keep", "s3.put", work.gb * GB / _SEGMENT_BYTES)
    notes = (
        f"{servers} servers (2 vCPU, 8 GB), half of them to take over, with {host.disk_gb:g} GB of disk each",
        "no load balancer, no transfer between zones, no backup, and no working time",
    )
    return ledger.bill("self-hosted", notes)


Peer = Callable[[Estimate], Bill]

_LEAST, _MOST = 1e3, 1e11
_STEPS_A_DECADE = 8
_BATCHES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000, 3000)


def crossings(estimate: Estimate, peer: Peer) -> list[tuple[float, bool]]:
    """Returns the appends per month at which both systems cost the same, if everything else grows in proportion, and
    for each whether Headrace costs more above it.

    There can be several, because bills have steps (another pair of servers). Looks between 1e3 and 1e11 appends.
    """

    def dearer_by(appends: float) -> float:
        at = replace(estimate, work=scaled(estimate.work, appends))
        return bill(at).usd - peer(at).usd

    found = []
    for low, high in itertools.pairwise(_grid()):
        before, after = dearer_by(low), dearer_by(high)
        if (before > 0) != (after > 0):
            found.append((_bisect(dearer_by, low, high), after > 0))
    return found


def least_batch(estimate: Estimate, peer: Peer) -> int | None:
    """Returns the smallest batch size, of some tried up to 3,000, at which the same records cost no more on Headrace
    than on the other system; None if there is none.
    """
    for batch in _BATCHES:
        at = replace(estimate, work=replace(estimate.work, appends=estimate.work.records / batch, batch=batch))
        if bill(at).usd <= peer(at).usd:
            return batch
    return None


def scaled(work: Workload, appends: float) -> Workload:
    """Returns the workload with another number of appends, and searches and replays in proportion. Followers and
    streams stay as they are.
    """
    factor = appends / work.appends
    return replace(work, appends=appends, searches=work.searches * factor, replayed_gb=work.replayed_gb * factor)


def _grid() -> Iterator[float]:
    appends = _LEAST
    while appends <= _MOST:
        yield appends
        appends *= 10 ** (1 / _STEPS_A_DECADE)


def _bisect(of: Callable[[float], float], low: float, high: float) -> float:
    sign = of(low) > 0
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if (of(middle) > 0) == sign else (low, middle)
    return high
