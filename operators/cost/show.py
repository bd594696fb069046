"""Bills, comparisons and prices as tables of text: for the command, and the same for the documentation. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cli.tables import Column
from operators.cost import compare, peers, units
from operators.cost.bill import Bill
from operators.cost.model import Reckoning, bill, jobs
from operators.cost.prices import Prices


@dataclass(frozen=True)
class Sheet:
    """A table with a title."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]


def money(usd: float) -> str:
    """US dollars: cents, and more digits of what is less than ten of them."""
    return f"{usd:,.2f}" if usd >= 0.1 or not usd else f"{usd:.4f}"


def amount(quantity: float) -> str:
    """A quantity for people: `12.3 M`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if quantity >= size:
            return f"{quantity / size:,.1f} {unit}"
    return f"{quantity:,.2f}".rstrip("0").rstrip(".")


def bill_sheet(it: Reckoning) -> Sheet:
    """Every line of the bill: its sum, its share, and what it is when nobody comes."""
    drawn = bill(it)
    empty = bill(Reckoning(it.work.idle(), it.counts, it.prices, it.assumed))
    rows: list[list[object]] = []
    for line in drawn.lines:
        idle = empty.of(line.part, line.price)
        share = line.usd / drawn.usd if drawn.usd else 0
        unit = it.prices[line.price].unit
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


def alone(it: Reckoning) -> Reckoning:
    """The streams without searches and indexes, which the peers do not have."""
    return replace(it, work=replace(it.work, searches=0, indexed=False))


def comparison(it: Reckoning) -> list[tuple[Bill, compare.Peer | None]]:
    """Headrace's bill for the streams alone, and the peers', the least first."""
    drawn: list[tuple[Bill, compare.Peer | None]] = [(bill(alone(it)), None)]
    drawn += [(peer(it), peer) for peer in (peers.kinesis, peers.self_hosted)]
    return sorted(drawn, key=lambda found: found[0].usd)


def comparison_sheet(it: Reckoning) -> Sheet:
    """The sums of the three, their parts, and where Headrace is as dear as each peer."""
    rows: list[list[object]] = []
    for drawn, peer in comparison(it):
        parts = ", ".join(f"{part} {money(usd)}" for part, usd in drawn.parts().items() if usd >= 0.005)
        rows.append([drawn.name, money(drawn.usd), parts, break_even(alone(it), peer) if peer else None])
    return Sheet(
        "The same elsewhere, US dollars a month, for the streams alone: nobody else searches them",
        [Column("who"), Column("USD", True), Column("parts"), Column("Headrace costs as much at")],
        rows,
    )


def break_even(it: Reckoning, peer: compare.Peer) -> str:
    """Words for the points at which both cost the same."""
    if not it.work.appends:
        return "any traffic: ask with --appends-per-month"
    found = [
        f"{amount(appends)} appends ({'dearer' if dearer else 'cheaper'} above)"
        for appends, dearer in compare.crossings(it, peer)
    ]
    batch = compare.least_batch(it, peer)
    found.append(
        f"batches of {batch:,} of the same records" if batch else "no batch of up to 3,000 of the same records"
    )
    return "; ".join(found)


def append_sheet(it: Reckoning) -> Sheet:
    """Prices of appends by size and batch."""
    rows = [
        [
            f"{one.record_bytes:,}",
            f"{one.batch:,}",
            f"1 + {it.counts.stored(one.record_bytes * one.batch) / 1000:,.0f} kB PUT"
            if one.is_spilled
            else one.write_units,
            money(one.million_appends),
            money(one.million_records),
            money(one.gb),
        ]
        for one in units.appends(it)
    ]
    titles = ("record bytes", "batch", "write units", "USD per M appends", "USD per M records", "USD per GB")
    return Sheet("Appends: written, sealed, trimmed", [Column(title, True) for title in titles], rows)


def unit_sheet(it: Reckoning) -> Sheet:
    """Prices of what is not an append."""
    rows = [[one.of, money(one.usd)] for one in units.others(it)]
    return Sheet("Kept, read, indexed", [Column("one more"), Column("USD", True)], rows)


def search_sheet(it: Reckoning) -> Sheet:
    """Prices of a million searches by class."""
    rows = [
        [name, it.counts.printed.queries[name].gets, money(opened), money(cold) if cold is not None else None]
        for name, opened, cold in units.searches(it)
    ]
    return Sheet(
        "A million searches of a million events",
        [Column("class"), Column("GETs", True), Column("USD, opened", True), Column("USD, cold process", True)],
        rows,
    )


def price_sheet(prices: Prices) -> Sheet:
    """The price table."""
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


def assumptions(it: Reckoning) -> Iterator[str]:
    """What no count says: of Headrace, then of the peers."""
    yield "assumed: " + ", ".join(f"{name}={value:g}" for name, value in asdict(it.assumed).items())
    for drawn, peer in comparison(it):
        if peer is not None:
            yield from (f"assumed of {drawn.name}: {note}" for note in drawn.notes)


def document(it: Reckoning) -> dict[str, Any]:
    """All of it for scripts."""
    drawn = bill(it)
    empty = bill(Reckoning(it.work.idle(), it.counts, it.prices, it.assumed))
    found: dict[str, Any] = {
        "region": it.prices.region,
        "prices_as_of": it.prices.oldest,
        "workload": asdict(it.work),
        "assumptions": asdict(it.assumed),
        "index_jobs": asdict(jobs(it)),
        "usd": drawn.usd,
        "streams_alone_usd": bill(alone(it)).usd,
        "idle_usd": empty.usd,
        "lines": [asdict(line) | {"idle_usd": empty.of(line.part, line.price)} for line in drawn.lines],
        "peers": {},
    }
    for other, peer in comparison(it):
        if peer is not None:
            found["peers"][other.name] = {
                "usd": other.usd,
                "parts": other.parts(),
                "notes": other.notes,
                "break_even": [
                    {"appends": appends, "headrace_is_dearer_above": dearer}
                    for appends, dearer in (compare.crossings(alone(it), peer) if it.work.appends else ())
                ],
                "least_batch": compare.least_batch(alone(it), peer) if it.work.appends else None,
            }
    return found


def markdown(sheet: Sheet) -> str:
    """The table as the documentation has it."""
    head = "| " + " | ".join(column.title for column in sheet.columns) + " |"
    line = "|" + "|".join("---:" if column.is_number else "---" for column in sheet.columns) + "|"
    rows = ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in sheet.rows]
    return "\n".join([head, line, *rows])
