"""The command `headrace verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from cli.options import json_option
from cli.tables import counted
from cli.terminal import say
from headrace.errors import HeadraceError
from operators.stores import EXIT_CODES, Steps, logs_of, print_json, state_file_option, store_errors, threads

if TYPE_CHECKING:
    from headrace.log.stores import Stores
    from headrace.recovery.report import Finding, VerifyReport

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
  headrace verify default/Txn --rows 100        # the lanes of an event, and one row in 100 of its tables
  headrace verify --json | jq '.findings[]'
  headrace verify --state-file dev.json         # of `headrace dev --state-file dev.json`

{EXIT_CODES}"""


@click.command(epilog=EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--rows",
    "share",
    type=click.IntRange(min=1),
    metavar="N",
    help="Also compute one in N rows of feature tables from the events again; 1: every row.",
)
@json_option
@state_file_option
def command(stores: Stores, names: tuple[str, ...], share: int | None, as_json: bool) -> None:
    """Check that everything stored is intact and consistent: all logs of each NAME, or every log.

    It reads every published byte, so it takes as long as a download. The command talks to AWS itself, not to a
    server, and writes nothing.
    """
    with store_errors("verify"), Steps() as steps:
        report = _verify(stores, names, steps)
        if share is not None:
            rows, findings = _audit(stores, names, share, steps)
            report = msgspec.structs.replace(report, findings=(*report.findings, *findings))
    if as_json:
        print_json(report if share is None else {**msgspec.to_builtins(report), "rows": rows})
    else:
        _print(report)
        if share is not None:
            say(
                f"{counted(rows.compared, 'row')} of feature tables compared, {rows.changed_meanwhile:,} changed meanwhile"
            )
            for line in rows.not_compared:
                say(f"not compared: {line}")
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


class Rows(msgspec.Struct):
    """What was compared with the events of its lane.

    Attributes:
        compared: number of rows.
        changed_meanwhile: number of rows that were not compared, since events came meanwhile.
        not_compared: the tables that were not compared, each with the reason.
    """

    compared: int = 0
    changed_meanwhile: int = 0
    not_compared: list[str] = []


def _audit(stores: Stores, names: tuple[str, ...], share: int, steps: Steps) -> tuple[Rows, list[Finding]]:
    """Audits the lanes with these names, or all. Returns what was compared, and a finding for each row that is wrong."""
    from headrace.features.audit import audit
    from headrace.features.register import Registrations
    from headrace.features.restore import living_rows
    from headrace.features.values import is_registry
    from headrace.log.seam import which_of
    from headrace.recovery.report import Finding

    log = Registrations(stores)
    events = [row for row in living_rows(stores) if not is_registry(row.name)]
    lanes = [one for row in events if not names or row.name in names for one in row.logs]
    rows, findings = Rows(), list[Finding]()
    for number, lane in enumerate(lanes):
        steps("rows of feature tables", number, len(lanes))
        config = lane.config
        try:
            found = audit(log, which_of(config.name, config.role), share)
        except HeadraceError as exc:  # of a damaged log the report says more
            rows.not_compared.append(f"{config.title}: {exc}")
            continue
        rows.compared += found.rows
        rows.changed_meanwhile += found.moved
        rows.not_compared += [f"{config.title}: {table}: {reason}" for table, reason in found.left_out]
        findings += [Finding("row.differs", "error", lane.log_id, " ".join(row)) for row in found.wrong]
    return rows, findings


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
