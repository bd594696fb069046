"""Runs the emulator under load with HTTP faults and kills, and says whether every law held. Exit code 1 if one did not."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from dataclasses import asdict, fields
from pathlib import Path

from tests.chaos.run import Options, Progress, Report, run

_HELP = {
    "appends": "run until so many are acknowledged",
    "kills": "and so many processes are killed, evenly of API processes, the dispatcher and the sealer",
    "writers": "threads that append",
    "api_processes": "behind one port",
    "seed": "of the load, the killer and the faults; threads make runs of one seed differ all the same",
    "faults": "share of store requests that meet a fault",
    "kill_pause_s": "least seconds between two kills, on average; they are spread over the load",
    "write_pause_s": "seconds between two appends of a writer, on average",
    "forks": "at most so many forks",
    "limit_s": "seconds after which the load ends anyhow",
    "seal_records": "as of headrace dev",
    "seal_age": "as of headrace dev",
    "state_age": "as of headrace dev",
    "trim_age": "as of headrace dev",
    "sweep_every": "as of headrace dev: also the period of the audit",
    "merge_segments": "as of headrace dev; 0: none are merged",
    "merge_age": "as of headrace dev",
    "merge_retire": "as of headrace dev",
    "visibility_s": "after which the sealer's queue delivers again what a killed sealer had received",
    "rest_s": "seconds that the sealer has at the end",
    "data": "a new folder for `headrace dev --data`: there are no faults then, and the whole server is killed, too",
}
_BAR = 30


def main() -> int:
    """Runs what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    for option in fields(Options):
        kind = type(option.default)
        parser.add_argument(
            f"--{option.name.replace('_', '-')}", type=kind, default=option.default, help=_HELP[option.name]
        )
    parser.add_argument("--json", type=Path, help="write the report here, too")
    parser.add_argument("--log", type=Path, help="write what the emulator's processes printed here")
    given = vars(parser.parse_args())
    json_file: Path | None = given.pop("json")
    log_file: Path | None = given.pop("log")
    started = time.monotonic()
    report = run(Options(**given), _progress(started))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(text(report, time.monotonic() - started))
    if json_file is not None:
        json_file.write_text(json.dumps(_plain(report), indent=2, default=str) + "\n")
    if log_file is not None:
        log_file.write_text("\n".join(report.log) + "\n")
    return 1 if report.problems() else 0


def _progress(started: float) -> Progress:
    """Returns a function that shows progress: as a bar on a terminal, as a line every half a minute elsewhere."""
    last = 0.0

    def show(what: str, share: float) -> None:
        nonlocal last
        now = time.monotonic()
        if sys.stderr.isatty():
            bar = "#" * round(share * _BAR)
            print(f"\r[{bar:<{_BAR}}] {now - started:4.0f} s  {what[:60]:<60}", end="", file=sys.stderr, flush=True)
        elif now - last >= 30:
            last = now
            print(f"{now - started:4.0f} s  {what}", file=sys.stderr, flush=True)

    return show


def text(report: Report, seconds: float) -> str:
    """Returns the report as text for people."""
    rest = report.rest
    by_operation: dict[str, list[str]] = defaultdict(list)
    for (name, fault), count in sorted(report.faults.items()):
        by_operation[name].append(f"{fault} {count}")
    answers = {f"{method} {status or 'broken'}": count for (method, status), count in report.answers.items()}
    lines = [
        f"{seconds:.0f} s, of which {report.load_s:.0f} s under load",
        f"appends: {_counts(report.appends)}; {report.records:,} records acknowledged",
        f"lives of streams: {report.lives}  pages read: {report.pages:,}",
        f"kills: {report.kills.total()}: {_counts(report.kills)}",
        f"answers: {_counts(answers)}",
        f"sealer: {_counts(report.metrics)}",
        f"faults: {report.faults.total():,} in {len(report.faults)} pairs",
        *(f"  {name}: {', '.join(found)}" for name, found in by_operation.items()),
        f"rest after {rest.seconds:.0f} s: {rest.logs} logs, {rest.generations} generations, {rest.segments} segments "
        f"({rest.merged_away} merged away), "
        f"{rest.orphans} orphans of kills, {len(rest.damage)} findings, {len(rest.dead_letters)} dead letters",
        "laws:",
        *(f"  {'held  ' if not v.count else 'BROKEN'} {v.checked:>9,}  {n}" for n, v in report.verdicts.items()),
    ]
    problems = report.problems()
    lines += ["every law held"] if not problems else [f"{len(problems)} problems:", *(f"  {one}" for one in problems)]
    return "\n".join(lines)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def _plain(report: Report) -> dict[str, object]:
    found: dict[str, object] = {one.name: getattr(report, one.name) for one in fields(report) if one.name != "log"}
    found |= {"options": asdict(report.options), "rest": asdict(report.rest)}
    found["verdicts"] = {name: asdict(verdict) for name, verdict in report.verdicts.items()}
    found["faults"] = {f"{name} {fault}": count for (name, fault), count in sorted(report.faults.items())}
    found["answers"] = {f"{method} {status}": count for (method, status), count in sorted(report.answers.items())}
    found["problems"] = report.problems()
    return found


if __name__ == "__main__":
    sys.exit(main())
