"""A whole run: an emulator with faults, a load, kills, rest, and the laws."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from cli.units import Duration
from functions.metrics import SealerMetric
from headrace.manifest.merging import MergeLimits
from headrace.settings import Settings
from local.template import read_template
from tests.chaos import injector, laws
from tests.chaos.client import Client
from tests.chaos.killer import Killer
from tests.chaos.load import COMING_AND_GOING, STEADY, Common, Cycle, Follower, Forker, Worker, Writer
from tests.chaos.rest import Rest, come_to_rest
from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS

# Of the sealer's queue. Here processes die every few seconds: what AWS gives up after five deliveries is no poison yet.
RECEIVED_AT_MOST = 50


@dataclass(frozen=True)
class Options:
    """What to run: until so many appends are acknowledged and so many processes killed, or the time is over."""

    appends: int = 20_000
    kills: int = 100
    writers: int = 16
    api_processes: int = 3
    seed: int = 1
    faults: float = 0.02
    kill_pause_s: float = 1.0
    write_pause_s: float = 0.02
    forks: int = 40
    limit_s: float = 1200.0
    seal_records: int = 200
    seal_age: str = "3s"
    state_age: str = "1s"
    trim_age: str = "8s"
    sweep_every: str = "30s"
    merge_segments: int = 0
    merge_age: str = "2s"
    merge_retire: str = "5s"
    visibility_s: int = 15
    rest_s: float = 300.0
    data: str = ""

    @property
    def merge_limits(self) -> MergeLimits:
        """What is merged under these options."""
        age_ms = Duration().convert(self.merge_age, None, None)
        return MergeLimits(self.merge_segments, Settings().seal_bytes, self.seal_records, age_ms)


@dataclass
class Outcome:
    """What came of a run, whatever its load."""

    options: Any
    load_s: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    verdicts: dict[str, laws.Verdict] = field(default_factory=dict)
    rest: Rest = field(default_factory=Rest)
    errors: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def broken(self) -> list[str]:
        """Returns every violation of a law, what did not come to rest, and what else went wrong."""
        found = [f"{law}: {what}" for law, verdict in self.verdicts.items() for what in verdict.broken]
        found += [f"{law}: was never looked at" for law, verdict in self.verdicts.items() if not verdict.checked]
        found += [f"not at rest: {what}" for what in self.rest.unfinished]
        found += [f"damage: {what}" for what in self.rest.damage]
        found += [f"dead letter: {what}" for what in self.rest.dead_letters]
        return [*self.errors, *found]


@dataclass
class Report(Outcome):
    """What came of a run on streams."""

    appends: Counter[str] = field(default_factory=Counter)
    records: int = 0
    lives: int = 0
    pages: int = 0
    metrics: dict[str, int] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """Returns every violation of a law and whatever else went wrong; empty if nothing did."""
        found = self.broken()
        if self.appends["acknowledged"] < self.options.appends or self.kills.total() < self.options.kills:
            found.append(f"the load ended early: {dict(self.appends)} kills={self.kills.total()}")
        return found


Progress = Callable[[str, float], None]
"""Called with what is being done, and how much of the load is done (0 to 1)."""


def run(options: Options, progress: Progress) -> Report:
    """Runs it. Never raises for what the engine does; `Report.problems` says it."""
    report = Report(options)
    with faulty_server(options, report, runs_jobs=True) as (server, folder):  # merges
        _load(server, options, report, folder, progress)
        report.metrics = _metrics(server.metric_lines())
    return report


@contextmanager
def faulty_server(options: Options, report: Outcome, *, runs_jobs: bool = False) -> Iterator[tuple[DevServer, Path]]:
    """Yields an emulator whose processes meet faults, and the folder in which they note them; completes the report."""
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as scratch:
        folder = Path(scratch)
        environment = {
            injector.FOLDER: scratch,
            injector.RATE: str(options.faults),
            injector.SEED: str(options.seed),
        }
        given = arguments(options, template(folder, options.visibility_s))
        given += ["--data", options.data] if options.data else []
        with dev_server(*given, environment=environment | NO_METRICS, runs_jobs=runs_jobs) as server:
            yield server, folder
            if server.has_ended:
                report.errors.append(f"the emulator ended with {server.process.returncode}: {server.log[-30:]}")
        report.faults = injector.met(folder)
        report.log = server.log


def command(module: str, doc: str | None, kind: Any, names: tuple[str, ...], run: Callable[[Any], Any]) -> int:
    """Runs a load as its command line says: options of the given names. Prints the report; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option in fields(kind):
        if option.name in (*names, "data"):
            flag = f"--{option.name.replace('_', '-')}"
            parser.add_argument(flag, type=type(option.default), default=option.default, help="%(default)s")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--log", type=Path, help="write what the emulator's processes printed here")
    given = vars(parser.parse_args())
    json_file, log_file = given.pop("json"), given.pop("log")
    report = run(kind(**given))
    print(report.text())
    if json_file is not None:
        verdicts = {name: asdict(verdict) for name, verdict in report.verdicts.items()}
        figures = {"options": asdict(report.options), "verdicts": verdicts, "kills": dict(report.kills)}
        json_file.write_text(json.dumps(figures, indent=2) + "\n")
    if log_file is not None:
        log_file.write_text("\n".join(report.log) + "\n")
    return 1 if report.problems() else 0


def arguments(options: Options, template: Path) -> list[str]:
    return [
        "--app=tests.chaos.faulty:create_app",
        f"--template={template}",
        f"--api-processes={options.api_processes}",
        f"--seed={options.seed}",
        f"--seal-records={options.seal_records}",
        f"--seal-age={options.seal_age}",
        f"--state-age={options.state_age}",
        f"--trim-age={options.trim_age}",
        f"--sweep-every={options.sweep_every}",
        f"--merge-segments={options.merge_segments}",
        f"--merge-age={options.merge_age}",
        f"--merge-retire={options.merge_retire}",
        "--log-level=warning",
    ]


def template(folder: Path, visibility_s: int) -> Path:
    """Returns the deployment as it is, but with the sealer, the relay and the folder on faulty clients, and queues that are
    made for many deaths.
    """
    template: dict[str, Any] = read_template()
    for part in template["Resources"].values():
        if part["Type"] == "AWS::Lambda::Function":
            package, _, name = part["Properties"]["Handler"].removeprefix("functions.").partition(".handler.")
            if package in ("sealer", "relay", "folder") and name:
                part["Properties"]["Handler"] = f"tests.chaos.faulty.{package}"
        if part["Type"] == "AWS::SQS::Queue" and "VisibilityTimeout" in part["Properties"]:
            part["Properties"]["VisibilityTimeout"] = visibility_s
            part["Properties"]["RedrivePolicy"]["maxReceiveCount"] = RECEIVED_AT_MOST
    path = folder / "template.json"
    path.write_text(json.dumps(template))
    return path


def _load(server: DevServer, options: Options, report: Report, folder: Path, progress: Progress) -> None:
    common = Common(server.url, options.seed, options.write_pause_s)
    history = common.history
    writers = [Writer(common, f"w{number}") for number in range(options.writers)]
    cycles = [Cycle(common, name, kind) for name, (kind, _) in COMING_AND_GOING.items()]
    forker = Forker(common, options.forks)
    streams = {name: kind for name, (kind, _) in {**STEADY, **COMING_AND_GOING}.items()}
    followers = [Follower(common, name, kind) for name, kind in streams.items()]
    done = 0.0
    killer = Killer(server, common.random("killer"), options.kills, options.kill_pause_s, lambda: done, common.stop)

    founder = Founder(common)
    founder.start()
    founder.join()
    started = time.monotonic()
    workers: list[Worker] = [*writers, *cycles, forker]
    for thread in [*followers, *workers, killer]:
        thread.start()
    while time.monotonic() - started < options.limit_s and not server.has_ended:
        acknowledged = sum(1 for _ in history.acknowledged())
        kills = killer.done.total()
        done = min(1.0, acknowledged / options.appends)
        progress(f"{acknowledged:,} appends, {kills} kills", done)
        if acknowledged >= options.appends and kills >= options.kills:
            break
        if any(worker.error for worker in [*workers, *followers]):
            break
        time.sleep(0.5)  # between two looks: the threads do the work
    common.stop.set()
    for worker in workers:
        worker.join(120)
    common.written.set()
    (folder / injector.CALM).touch()
    report.load_s = time.monotonic() - started
    killer.join(60)  # a whole server may be starting again
    for follower in followers:
        follower.join(60)
    everybody: list[Worker] = [founder, *workers, *followers]
    report.errors += [f"{worker.name} did not end" for worker in everybody if worker.is_alive()]
    report.errors += [f"{worker.name}: {worker.error!r}" for worker in everybody if worker.error is not None]
    report.kills = killer.done
    if not server.has_ended:
        living = {**streams, **forker.living}
        _read_everything(common, "reader before rest", living, report)
        report.rest = come_to_rest(server, options.rest_s, options.merge_limits, lambda what: progress(what, 1.0))
        _read_everything(common, "reader after rest", living, report)
    progress("judging", 1.0)
    report.appends = Counter(append.outcome for append in history.appends)
    report.records = sum(append.parts for append in history.acknowledged())
    report.lives, report.pages = len(history.creations), len(history.pages)
    report.answers = sum(common.answers, Counter())
    report.verdicts = laws.judge(history)


class Founder(Worker):
    """Creates the streams that stay."""

    def __init__(self, common: Common) -> None:
        super().__init__(common, "founder")

    def work(self) -> None:
        for name, (kind, _) in STEADY.items():
            self.create(name, kind)


def _read_everything(common: Common, reader: str, living: dict[str, str], report: Report) -> None:
    client = Client(common.url, common.history, common.random(reader))
    try:
        for name, kind in living.items():
            client.read_all(reader, name, kind)
    except AssertionError as exc:
        report.errors.append(f"{reader}: {exc}")
    finally:
        common.answers.append(client.answers)
        client.close()


def _metrics(lines: list[str]) -> dict[str, int]:
    """Sums of the sealer's counters, from its EMF lines."""
    counters = {metric.name for metric in SealerMetric if metric.spec.unit == "Count"}
    sums: Counter[str] = Counter()
    for line in lines:
        values = json.loads(line)
        if values["service"] == SealerMetric.service:
            sums.update({name: int(sum(value)) for name, value in values.items() if name in counters})
    return dict(sorted(sums.items()))
