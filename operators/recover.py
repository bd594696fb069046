"""The command `headrace recover`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.options import json_option
from cli.terminal import say
from operators.stores import EXIT_CODES, Steps, print_json, state_file_option, store_errors, threads

if TYPE_CHECKING:
    from headrace.log.stores import Stores
    from headrace.recovery.report import LogRecovered, RecoverReport

EPILOG = f"""\b
What comes back: everything published (records are, about 5 minutes after their append at the latest), the names,
whether logs are closed or have ended, forks, and the last 8 producers of each log.

\b
What can't: records acknowledged behind the published end, and closes and deletes behind it; logs of which nothing was
published; producers beyond the last 8. The report says for each log what may be lost. A log's incarnation rises, so that
an offset that a client saw and that is used again is never mistaken: older offsets stay valid up to the recovered end,
and get 410 beyond it.

\b
Nothing may write meanwhile. Either
  - point HEADRACE_*_TABLE at new, empty tables, recover, and then start the functions on them; or
  - stop every function first.
Tables that were restored to an earlier time (point-in-time recovery) need --rewound, once: it raises every incarnation.

\b
Examples:
  headrace recover --dry-run
  headrace recover --json > report.json
  headrace recover --state-file dev.json        # of `headrace dev --state-file dev.json`
  headrace verify                               # afterwards

{EXIT_CODES}"""

_ORDER = ("refused", "lost", "restored", "repaired", "ended", "superseded", "gone", "intact")


@click.command(epilog=EPILOG)
@click.option("--dry-run", is_flag=True, help="Report what would be done, and write nothing.")
@click.option(
    "--rewound",
    is_flag=True,
    help="The tables were restored to an earlier time: raise the incarnation of intact logs, too.",
)
@json_option
@state_file_option
def command(stores: Stores, dry_run: bool, rewound: bool, as_json: bool) -> None:
    """Rebuild the tables from the bucket alone.

    Use it after tables were lost, emptied or restored to an earlier time. The command talks to AWS itself, not to a
    server. It writes only what is missing, never removes an object, and a second run changes nothing.
    """
    from headrace.recovery.recover import recover

    with store_errors("recover"), Steps() as steps:
        report = recover(stores, dry_run=dry_run, rewound=rewound, progress=steps, threads=threads())
    if as_json:
        print_json(report)
    else:
        _print(report)
    if not report.clean:
        click.get_current_context().exit(1)


def _print(report: RecoverReport) -> None:
    for log in sorted(report.logs, key=lambda log: (_ORDER.index(log.status), log.name)):
        if log.status not in ("intact", "gone"):
            say(_line(log))
    for what in report.derived:
        say(f"rows       {what}")
    for one in report.counters:
        say(f"counter    {one.what}  is {one.right}  it said {one.said}")
    counts = {status: sum(log.status == status for log in report.logs) for status in _ORDER}
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "no logs"
    say(f"{'dry run, nothing written: ' if report.dry_run else ''}{said}")


def _line(log: LogRecovered) -> str:
    parts = [f"{log.status:10} {log.name or log.log_id}", f"end={log.end_offset}", f"incarnation={log.incarnation}"]
    if log.wrote:
        parts.append(f"wrote={'+'.join(log.wrote)}")
    if log.lost:
        parts.append(f"may be lost: {', '.join(log.lost)}")
    if log.evidence_offset is not None:
        parts.append(f"records existed up to {log.evidence_offset}")
    if log.reason:
        parts.append(log.reason)
    return "  ".join(parts)
