"""The commands that start jobs of feature tables: training sets and snapshots, which are Parquet, and back-fills."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import click

from cli.documents import document
from cli.errors import CliError
from cli.features import Tables, tables_options
from cli.options import example, json_option, print_json, segment
from cli.output import steps_bar
from cli.tables import age, counted, size
from cli.terminal import print_document, say

PAUSE_S = 2.0


def export_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of both exports."""
    for option in (
        click.option("--feature", "features", multiple=True, help="Only this feature; may be given more than once."),
        click.option(
            "--backfill", is_flag=True, help="Count all events, as if the table had always been as it is now."
        ),
        click.option("--dry-run", is_flag=True, help="Only say what is read, and about what it takes and costs."),
        click.option("--no-wait", is_flag=True, help="Print the id of the job, and do not wait for its end."),
        json_option,
        tables_options,
    )[::-1]:
        command = option(command)
    return command


@click.command(
    epilog=example(
        "aws s3 cp fraud.parquet s3://BUCKET/labels/default/fraud.parquet",
        "headrace features training-set Spend labels/default/fraud.parquet --dry-run",
        "headrace features training-set Spend labels/default/fraud.parquet",
        "headrace features training-set Spend labels/default/2026/    # every object below it",
    )
)
@click.argument("table")
@click.argument("labels")
@export_options
def training_set(tables: Tables, table: str, labels: str, **options: Any) -> None:
    """Add to each label in LABELS the features of TABLE, as `get` would have shown them at the label's own time.

    LABELS is the key of a Parquet object in the server's bucket, below `labels/NAMESPACE/`, or ends with a slash and means
    all objects below it. Columns: those of the table's key; `event_timestamp`; if you have it, `as_of`, the text of the
    header Headrace-As-Of of the answer that your model saw; and whatever else you want to keep.

    Prints where the training set is: an object for each object of labels, with the same rows in the same order.
    """
    found = _export(tables, "training-set", {"table": table, "labels": labels}, **options)
    if found is not None:
        for key in found["objects"]:
            say(key)
        unmatched = found["unmatched"]
        if unmatched:
            say(f"unmatched, so that their features are null: {counted(unmatched, 'label')}", err=True)


@click.command(
    epilog=example(
        "headrace features snapshot Spend --dry-run",
        "headrace features snapshot Spend > spend_view.py     # for Feast",
        "headrace features snapshot Spend --json | jq -r '.result.objects[]'",
        "headrace features snapshot Spend --as-of '1700000000000;Txn=42'",
    )
)
@click.argument("table")
@click.option("--as-of", help="A text of the header Headrace-As-Of: the rows as that answer saw them.")
@export_options
def snapshot(tables: Tables, table: str, as_of: str | None, **options: Any) -> None:
    """Write the rows of TABLE as Parquet: the key, the features, `event_timestamp` and `created`.

    Prints the definition of a Feast feature view whose source they are.
    """
    found = _export(tables, "snapshot", {"table": table, **({"as_of": as_of} if as_of else {})}, **options)
    if found is not None:
        say(f"objects: {', '.join(found['objects'])}", err=True)
        for line in found["view"].splitlines():
            say(line)


@click.command(
    epilog=example(
        "headrace features backfill Spend --dry-run",
        "headrace features backfill Spend",
        'headrace features register new.json    # a table with "backfill": true is back-filled at once',
    )
)
@click.argument("table")
@click.option("--dry-run", is_flag=True, help="Only say what is read, and about what it takes and costs.")
@click.option("--no-wait", is_flag=True, help="Print the id of the job, and do not wait for its end.")
@json_option
@tables_options
def backfill(tables: Tables, table: str, **options: Any) -> None:
    """Compute TABLE from all events that are kept, as if it had always been as it is now.

    A new table has the events since its registration. While its rows are computed again, it answers from the old ones;
    then the new rows, which have every event, take their place at once.
    """
    _export(tables, "backfill", {"table": table}, features=(), backfill=False, **options)


@click.command(epilog=example("headrace features job 1700000000000-0123456789ab", "headrace features job ID --json"))
@click.argument("job_id", metavar="ID")
@json_option
@tables_options
def job(tables: Tables, job_id: str, as_json: bool) -> None:
    """Show what became of a training set, a snapshot or a back-fill."""
    answer = _look(tables, job_id)
    if as_json:
        print_document(answer)
        return
    found = json.loads(answer)
    steps = f", {found['done']} of {found['of']} steps" if found["state"] == "running" else ""
    say(f"{found['kind']} of {found['table']}: {found['state']}{steps}")
    for line in (found["reason"], *((found["result"] or {}).get("objects") or ())):
        if line:
            say(line)


def _export(
    tables: Tables,
    kind: str,
    body: dict[str, Any],
    *,
    features: tuple[str, ...],
    backfill: bool,
    dry_run: bool,
    no_wait: bool,
    as_json: bool,
) -> dict[str, Any] | None:
    """Asks for an export, and waits for its end. Returns its result; None if something else was to be shown."""
    flags = {name: True for name, given in (("backfill", backfill), ("dry_run", dry_run)) if given}
    body |= {**({"features": list(features)} if features else {}), **flags}
    what = f"make a {kind} of {body['table']}"
    answer = tables.call("POST", kind, what, body=body, is_safe=False)
    plan = document(answer, what)
    if as_json and (dry_run or no_wait):
        print_document(answer.content)
    elif dry_run:
        _print_plan(plan)
    elif no_wait:
        say(plan["job_id"])
    if dry_run or no_wait:
        return None
    last = _wait(tables, plan["job_id"], f"{kind} of {body['table']}")
    if as_json:
        print_json(last)
        return None
    result: dict[str, Any] = last["result"]
    took = age(last["ended_ms"] - last["created_ms"])
    say(f"{counted(result['rows'], 'row')} from {counted(result['events'], 'event')} in {took}", err=True)
    if result["skipped"]:
        skipped = counted(result["skipped"], "event")
        say(f"{skipped} did not fit the schema: {result['example']}", err=True)
    return result


def _print_plan(plan: Mapping[str, Any]) -> None:
    estimate = plan["estimate"]
    read = f"{counted(plan['events'], 'event')}, {size(plan['bytes'])}, {counted(plan['segments'], 'sealed segment')}"
    say(f"reads {read}")
    say(f"takes about {age(estimate['seconds'] * 1000)} and {estimate['usd']:.2f} USD on EMR Serverless")
    say(f"as of {plan['as_of']}")
    gone = {lane: first for lane, first in plan["first_offsets"].items() if first}
    for lane, first in gone.items():
        say(f"events of {lane} before offset {first} are no longer kept, and do not count")


def _look(tables: Tables, job_id: str) -> bytes:
    return tables.call("GET", f"jobs/{segment(job_id)}", f"look at job {job_id}").content


def _wait(tables: Tables, job_id: str, title: str) -> dict[str, Any]:
    """Waits until a job has ended, and returns what is shown of it then. Raises CliError if it failed."""
    say(f"job {job_id}; it goes on without this command: `headrace features job {job_id}`", err=True)
    with steps_bar() as progress:
        task = progress.add_task(title, total=None)
        while True:
            found: dict[str, Any] = json.loads(_look(tables, job_id))
            progress.update(task, completed=found["done"], total=found["of"] or None)
            if found["state"] == "failed":
                raise CliError(f"the {title} failed: {found['reason']}", f"job {job_id}")
            if found["state"] == "succeeded" and found["result"] is not None:
                return found
            tables.client.sleep(PAUSE_S)
