"""The command `headrace cost`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cli.errors import BadInput
from cli.options import json_option
from cli.tables import print_table
from cli.terminal import say
from cli.units import Duration, Size
from headrace.features.lanes import MAX_DEDUPED
from operators.cost import show
from operators.cost.charges import Estimate
from operators.cost.counts import counted
from operators.cost.prices import BadPrices, Prices, parse, standard
from operators.cost.workload import Workload
from operators.stores import print_json

HELP = """What a month costs on AWS: calls as they were counted, times a dated price table.

It needs no network. Describe the month that you expect; everything is spread evenly over it. The first table has a line for
each price that is paid: the quantity, the sum, its share, and what of it is paid without any request. The second compares
Kinesis Data Streams on demand and a server that you run yourself, and says above which volume each is cheaper.

\b
What makes it expensive, and what to do:
  many small requests   batch: 100 records of 500 bytes in one append cost as much as 5 appends
  middling payloads     each started KB of an entry is paid twice, written and trimmed: with payloads of 5 to
                        32 KB compressed a lower --spill-bytes (HEADRACE_SPILL_BYTES) is cheaper, and slower
  open followers        a connection held on Lambda is paid by the second, so is a watch; a silent socket is not
  events one by one     each row that an event changes is a write: push many at once, and keys that come often are
                        written once in two seconds
  jobs one by one       each is three requests and three writes: enqueue, claim and acknowledge many at once
  eager indexing        a job run has a fixed price: raise --index-age (HEADRACE_INDEX_AGE_MS)
  own metrics           custom metrics and a stream: --metrics-interval 0s shows what goes without the stream

Prices change, differ by region, and leave out free tiers, discounts, taxes and transfer to the internet. Check them:
--show-prices names the page and the day of each. docs/cost.md explains the model."""

EPILOG = """\b
Examples:
  headrace cost                                                  # an idle deployment
  headrace cost --appends-per-month 10e6 --batch 100 --record-bytes 500
  headrace cost --appends-per-month 10e6 --batch 100 --searches 1e6 --retention-days 365
  headrace cost --appends-per-month 1e6 --query 'exact requestId' --searches 1e6 --json | jq .usd
  headrace cost --jobs 10e6 --job-batch 10 --webhooks 1e6 --sockets 100 --pushes 5e6
  headrace cost --events 10e6 --feature-tables 3 --feature-rows 1e6 --feature-reads 5e6
  headrace cost --units                                          # a million appends, a GB kept, a million searches
  headrace cost --show-prices
  headrace cost --prices mine.toml --region-note eu-central-1

\b
A file for --prices has the tables that differ, such as:
  [dynamodb.write]
  usd = 0.7625
  per = 1_000_000
  unit = "write request unit"
  as_of = 2026-01-31
  source = "https://aws.amazon.com/dynamodb/pricing/on-demand/"

\b
Exit codes: 0 done, 2 wrong usage or input."""


class Amount(click.ParamType):  # type: ignore[type-arg]
    """A click option type for numbers that may be written as 10e6, and must not be negative."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parses the number; an invalid one ends the command with advice."""
        try:
            number = float(str(value).replace(",", "").replace("_", ""))
        except ValueError:
            self.fail(f"{value!r} is no number, such as 1000000 or 1e6", param, ctx)
        if not 0 <= number < 1e15:
            self.fail(f"{value!r} is out of range: 0 to 1e15", param, ctx)
        return number


@click.command(help=HELP, epilog=EPILOG)
@click.option("--appends-per-month", "appends", type=Amount(), default=0, help="Requests that append.")
@click.option(
    "--record-bytes", type=click.IntRange(1, 10**7), default=500, show_default=True, help="Bytes of a record."
)
@click.option("--batch", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Records in an append.")
@click.option(
    "--streams", type=click.IntRange(1), default=1, show_default=True, help="Streams that share the appends."
)
@click.option("--retention-days", type=Amount(), default=30, show_default=True, help="Days that data are kept.")
@click.option("--readers", type=Amount(), default=1, show_default=True, help="Reads of each append while it is new.")
@click.option("--replayed-gb", type=Amount(), default=0, help="Record data read from segments.")
@click.option("--searches", type=Amount(), default=0, help="Searches and aggregates.")
@click.option("--query", help="Class of the searches, as --units lists them. [default: the mean of all]")
@click.option(
    "--indexed/--not-indexed", default=None, help="Whether job runs index. [default: if there are searches]"
)
@click.option("--followers", type=Amount(), default=0, help="Long-polls or SSE on Lambda that are always open.")
@click.option("--jobs", type=Amount(), default=0, help="Jobs through queues: enqueued, claimed, acknowledged.")
@click.option(
    "--job-batch", type=click.IntRange(1, 1000), default=1, show_default=True, help="Jobs in one request of these."
)
@click.option("--copies", type=Amount(), default=0, help="Appends that routers copy, once for each router.")
@click.option("--watches", type=Amount(), default=0, help="Watches on Lambda that are always open.")
@click.option(
    "--watch-topics", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Topics of each watch."
)
@click.option("--sockets", type=Amount(), default=0, help="WebSockets that are always open.")
@click.option("--pushes", type=Amount(), default=0, help="Messages to sockets: one for each append and socket.")
@click.option("--webhooks", type=Amount(), default=0, help="Deliveries of webhooks.")
@click.option("--events", type=Amount(), default=0, help="Events pushed to feature tables, of --record-bytes each.")
@click.option(
    "--event-batch", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Events in one push."
)
@click.option("--deduped", is_flag=True, help="The events have a dedupe value.")
@click.option("--lanes", type=click.IntRange(1, 32), default=1, show_default=True, help="Lanes of the events.")
@click.option(
    "--feature-tables",
    type=click.IntRange(0, 1000),
    default=1,
    show_default=True,
    help="Tables in which each event changes a row.",
)
@click.option("--feature-rows", type=Amount(), default=0, help="Rows that the tables have.")
@click.option("--row-bytes", type=click.IntRange(1, 10**7), default=1000, show_default=True, help="Bytes of a row.")
@click.option("--feature-reads", type=Amount(), default=0, help="Reads of one row each.")
@click.option(
    "--cold-share",
    type=click.FloatRange(0, 1),
    default=0.001,
    show_default=True,
    help="Share of requests that meet a cold start.",
)
@click.option("--spill-bytes", type=Size(), default="32KiB", show_default=True, help="As HEADRACE_SPILL_BYTES.")
@click.option("--seal-age", type=Duration(), default="5m", show_default=True, help="As HEADRACE_SEAL_AGE_MS.")
@click.option("--index-age", type=Duration(), default="15m", show_default=True, help="As HEADRACE_INDEX_AGE_MS.")
@click.option(
    "--metrics-interval",
    type=Duration(),
    default="1m",
    show_default=True,
    help="As HEADRACE_METRICS_INTERVAL_MS; 0s: never.",
)
@click.option(
    "--environment",
    type=click.Choice(["dev", "prod"]),
    default="prod",
    show_default=True,
    help="The preset that is deployed.",
)
@click.option(
    "--noncurrent-days", type=Amount(), default=30, show_default=True, help="The bucket's old versions: 7 in dev."
)
@click.option(
    "--prices",
    "price_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML with prices that differ.",
)
@click.option("--region-note", help="Shown with the prices instead of the table's region.")
@click.option("--units", "as_units", is_flag=True, help="Prices of single things instead of a bill.")
@click.option("--show-prices", is_flag=True, help="The price table, with the day and page of each price.")
@json_option
def command(
    appends: float,
    record_bytes: int,
    batch: int,
    streams: int,
    retention_days: float,
    readers: float,
    replayed_gb: float,
    searches: float,
    query: str | None,
    indexed: bool | None,
    followers: float,
    jobs: float,
    job_batch: int,
    copies: float,
    watches: float,
    watch_topics: int,
    sockets: float,
    pushes: float,
    webhooks: float,
    events: float,
    event_batch: int,
    deduped: bool,
    lanes: int,
    feature_tables: int,
    feature_rows: float,
    row_bytes: int,
    feature_reads: float,
    cold_share: float,
    spill_bytes: int,
    seal_age: int,
    index_age: int,
    metrics_interval: int,
    environment: str,
    noncurrent_days: float,
    price_file: Path | None,
    region_note: str | None,
    as_units: bool,
    show_prices: bool,
    as_json: bool,
) -> None:
    """Prints the estimated bill of a workload; its help text is `HELP`."""
    counts = counted()
    if query is not None and query not in counts.printed.queries:
        raise BadInput(f"no such class of query: {query}", f"known: {'; '.join(counts.printed.queries)}")
    if seal_age <= 0 or index_age <= 0:
        raise BadInput("the ages must be above 0", "give one like 1s or 5m")
    if deduped and event_batch > MAX_DEDUPED:
        raise BadInput(f"a push has at most {MAX_DEDUPED} events with a dedupe value", "lower --event-batch")
    work = Workload(
        appends=appends,
        record_bytes=record_bytes,
        batch=batch,
        streams=streams,
        retention_days=retention_days,
        readers=readers,
        replayed_gb=replayed_gb,
        searches=searches,
        query=query,
        cold_share=cold_share,
        followers=followers,
        jobs=jobs,
        job_batch=job_batch,
        copies=copies,
        watches=watches,
        watch_topics=watch_topics,
        sockets=sockets,
        pushes=pushes,
        webhooks=webhooks,
        events=events,
        event_batch=event_batch,
        deduped=deduped,
        lanes=lanes,
        feature_tables=feature_tables,
        feature_rows=feature_rows,
        row_bytes=row_bytes,
        feature_reads=feature_reads,
        indexed=searches > 0 if indexed is None else indexed,
        spill_bytes=spill_bytes,
        seal_age_s=seal_age / 1000,
        index_age_s=index_age / 1000,
        metrics_s=metrics_interval / 1000,
        environment=environment,
        noncurrent_days=noncurrent_days,
    )
    estimate = Estimate(work, counts, _prices(price_file, region_note))
    if as_json:
        print_json(
            _unit_document(estimate) if as_units else estimate.prices if show_prices else show.document(estimate)
        )
    elif show_prices:
        _print(show.price_sheet(estimate.prices))
    elif as_units:
        for sheet in (
            show.append_sheet,
            show.unit_sheet,
            show.reaction_sheet,
            show.operation_sheet,
            show.search_sheet,
        ):
            _print(sheet(estimate))
        _footer(estimate)
    else:
        _print(show.bill_sheet(estimate))
        _print(show.comparison_sheet(estimate))
        for line in show.assumptions(estimate):
            say(line)
        _footer(estimate)


def _prices(price_file: Path | None, region_note: str | None) -> Prices:
    prices = standard()
    try:
        if price_file is not None:
            prices = prices.replaced(parse(price_file.read_bytes()))
    except BadPrices as exc:
        raise BadInput(f"{price_file}: {exc}", "`headrace cost --help` shows the form") from exc
    return Prices(region_note or prices.region, prices.entries)


def _unit_document(estimate: Estimate) -> dict[str, Any]:
    from operators.cost import units

    return {
        "region": estimate.prices.region,
        "prices_as_of": estimate.prices.oldest,
        "appends": [one._asdict() for one in units.appends(estimate)],
        "others": {one.of: one.usd for one in units.others(estimate)},
        "reactions": {one.of: one.usd for one in units.reactions(estimate)},
        "operations": estimate.counts.operations,
        "searches": {
            name: {"opened": opened, "cold_process": cold} for name, opened, cold in units.searches(estimate)
        },
    }


def _print(sheet: show.Sheet) -> None:
    print_table(sheet.columns, sheet.rows, sheet.title)
    say()


def _footer(estimate: Estimate) -> None:
    prices = estimate.prices
    say(
        f"Prices of {prices.region}, the oldest of {prices.oldest}: check them (--show-prices). Without free tiers, "
        "discounts, taxes and transfer to the internet."
    )
