"""The command `headrace verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.options import json_option
from cli.tables import counted
from cli.terminal import say
from operators.stores import EXIT_CODES, Steps, logs_of, print_json, state_file_option, store_errors, threads

if TYPE_CHECKING:
    from headrace.log.stores import Stores
    from headrace.recovery.report import VerifyReport

EPILOG = f"""\b
What it walks, for each log:
  - every manifest generation that was not replaced a day ago: there, readable, a lawful successor of the one before
  - every segment and key page: there, the size and SHA-256 that were published, and as many records as it should hold
  - the entries of the tail: one chain from the published end to the newest, with payloads that decode
  - the watermark, the catalog row, the fork point, the count of forks; without a NAME the counters of names, too
  - objects that nothing names

\b
Errors mean that data are lost, unreadable or in danger. Warnings put themselves right, or are put right by `headrace
recover`. A damaged or missing object can be brought back from an older version: the bucket keeps versions. On a log that
is written to meanwhile, an object that is just being published can show as an orphan; run it again.

\b
Examples:
  headrace verify
  headrace verify orders payments/eu
  headrace verify --json | jq '.findings[]'
  headrace verify --state-file dev.json         # of `headrace dev --state-file dev.json`

{EXIT_CODES}"""


@click.command(epilog=EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
@state_file_option
def command(stores: Stores, names: tuple[str, ...], as_json: bool) -> None:
    """Check that everything stored is intact and consistent: all logs of each NAME, or every log.

    It reads every published byte, so it takes as long as a download. The command talks to AWS itself, not to a
    server, and writes nothing.
    """
    with store_errors("verify"), Steps() as steps:
        report = _verify(stores, names, steps)
    if as_json:
        print_json(report)
    else:
        _print(report)
    if not report.clean:
        click.get_current_context().exit(1)


def _verify(stores: Stores, names: tuple[str, ...], steps: Steps) -> VerifyReport:
    from headrace.recovery.report import VerifyReport
    from headrace.recovery.verify import verify, verify_all

    if not names:
        return verify_all(stores, steps, threads())
    hint = "without names, every log is checked, whatever the catalog says"
    log_ids = [log_id for name in names for log_id in logs_of(stores, name, hint)]
    reports = [verify(stores, log_id, steps) for log_id in log_ids]
    return VerifyReport(
        tuple(log for report in reports for log in report.logs),
        tuple(finding for report in reports for finding in report.findings),
    )


def _print(report: VerifyReport) -> None:
    name_of = {log.log_id: log.name for log in report.logs}
    for one in report.findings:
        said = "  ".join(
            f"{what}: {text}" for what, text in (("expected", one.expected), ("found", one.found)) if text
        )
        name = name_of.get(one.log_id) or one.log_id
        say(f"{one.severity:8} {one.kind:20} {name}  {one.where}  {said}".rstrip())
    sums = {
        what: sum(getattr(log, what) for log in report.logs) for what in ("segments", "records", "entries", "bytes")
    }
    size = f"{sums.pop('bytes') / 1e6:,.1f} MB"
    plurals = {"segment": "segments", "record": "records", "entry": "entries"}
    said = ", ".join(counted(sums[plural], noun, plural) for noun, plural in plurals.items())
    errors = sum(one.severity == "error" for one in report.findings)
    warnings = len(report.findings) - errors
    say(
        f"{counted(len(report.logs), 'log')}: {said}, {size}: {counted(errors, 'error')}, {counted(warnings, 'warning')}"
    )
