"""Runs queues on the emulator under HTTP faults and kills, and says whether every law held. Exit code 1 if one did not.

    uv run python -m tests.chaos.jobs --jobs 20000 --kills 100

Producers push jobs, each batch under an idempotency key until it is acknowledged. Workers claim, and ack, nack, extend or
forget what they hold. API processes, the sealer and the dispatcher are killed all the while.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import orjson

from tests.chaos import injector
from tests.chaos.client import JSON, NOTHING_WRITTEN, PATIENCE_S, UNKNOWN, Answer, Impatient
from tests.chaos.killer import Killer
from tests.chaos.laws import Verdict
from tests.chaos.load import Common, Worker
from tests.chaos.rest import Rest, come_to_rest
from tests.chaos.run import Options, arguments, template
from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.pipeline import NO_METRICS

PLAIN, DYING, GRAVE = "jobs", "jobs-that-die", "jobs-that-died"
MAX_DELIVERIES = 3
_HEADERS = {"Content-Type": JSON}


@dataclass(frozen=True)
class JobOptions(Options):
    """What to run: until so many jobs are pushed and done and so many processes killed, or the time is over."""

    jobs: int = 20_000
    producers: int = 8
    workers: int = 8
    lease_ms: int = 4_000


class Push(NamedTuple):
    """A batch that was acknowledged: its jobs, and the seq of the first."""

    queue: str
    ids: tuple[str, ...]
    first_seq: int


class Delivery(NamedTuple):
    """A job as a worker got it, from before its claim was sent to after it was answered (monotonic seconds). `deadline_ms`
    is the server's, as extended; `claimed_ms` is when the server leased it.
    """

    queue: str
    seq: int
    id: str
    lease_id: str
    number: int
    claimed_ms: int
    deadline_ms: int
    started: float
    ended: float


class Settlement(NamedTuple):
    """An ack or nack of one delivery. `outcome`: done, skipped, or unknown (a try that got no answer may have done it)."""

    verb: str
    queue: str
    seq: int
    lease_id: str
    outcome: str
    started: float
    ended: float


@dataclass
class Jobs:
    """Everything that happened to jobs. `lost_claims`: claims whose answer was lost, by queue."""

    pushes: list[Push] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    lost_claims: Counter[str] = field(default_factory=Counter)
    buried: list[str] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    settled: threading.Event = field(default_factory=threading.Event)

    def done(self) -> set[str]:
        """Returns the ids of jobs whose ack was answered, or may have been."""
        at = {(one.queue, one.seq): one.id for one in self.deliveries}
        acks = (one for one in self.settlements if one.verb == "ack" and one.outcome != "skipped")
        return {at[one.queue, one.seq] for one in acks}


class Person(Worker):
    """A client of queues."""

    prefix = "/v0/topics/"

    def __init__(self, common: Common, name: str, jobs: Jobs, options: JobOptions) -> None:
        super().__init__(common, name)
        self.jobs, self.options = jobs, options

    def ask(self, queue: str, verb: str, body: dict[str, object]) -> tuple[Answer, bool]:
        """Repeats a request until it is answered; returns the answer, and whether an earlier try may have taken effect.
        Raises `Impatient` if that takes too long.
        """
        deadline, is_unsure = time.monotonic() + PATIENCE_S, False
        while time.monotonic() < deadline:
            answer = self.client.send("POST", queue + verb, _HEADERS, orjson.dumps(body))
            if answer.status in (200, 201):
                return answer, is_unsure
            if answer.status not in NOTHING_WRITTEN | UNKNOWN:
                self.client.surprise("POST", queue + verb, answer)
                break
            is_unsure = is_unsure or answer.status in UNKNOWN
            self.client.wait()
        raise Impatient(f"{queue}{verb}: {answer.status} {answer.body[:200]!r}")


class Producer(Person):
    """Pushes its share of the jobs."""

    def work(self) -> None:
        share, pushed = self.options.jobs // self.options.producers, 0
        while pushed < share and not self.common.stop.is_set():
            count = min(self.random.randint(1, 20), share - pushed)
            ids = tuple(f"{self.name}-{number}" for number in range(pushed, pushed + count))
            queue = DYING if self.random.random() < 0.15 else PLAIN
            records = [{"data": {"id": one, "pad": "x" * self.random.randrange(60)}} for one in ids]
            answer, _ = self.ask(queue, "", {"records": records, "idempotency_key": ids[0]})
            self.jobs.pushes.append(Push(queue, ids, orjson.loads(answer.body)["first_seq"]))
            pushed += count
            self.common.stop.wait(self.random.random() * 2 * self.common.pause_s)


class Consumer(Person):
    """Claims jobs, and acks, nacks, extends or forgets them."""

    def work(self) -> None:
        while not self.jobs.settled.is_set():
            queue = DYING if self.random.random() < 0.2 else PLAIN
            held = self._claim(queue)
            if not held:
                self.client.wait()
            self._treat(held)

    def _claim(self, queue: str) -> list[Delivery]:
        lease_ms = self.options.lease_ms
        body = {"node": self.name, "max": self.random.randint(1, 24), "lease_ms": lease_ms}
        started = time.monotonic()
        answer = self.client.send("POST", queue + "/claim", _HEADERS, orjson.dumps(body))
        ended = time.monotonic()
        if answer.status != 200:
            if answer.status in UNKNOWN:
                self.jobs.lost_claims[queue] += 1
            elif answer.status not in NOTHING_WRITTEN:
                self.client.surprise("POST", queue + "/claim", answer)
            return []
        held = []
        for job in orjson.loads(answer.body)["claimed"]:
            seq, deadline, number = job["$seq"], job["deadline"], job["deliveries"]
            leased = deadline - lease_ms
            held.append(
                Delivery(queue, seq, job["data"]["id"], job["lease_id"], number, leased, deadline, started, ended)
            )
        self.jobs.deliveries += held
        return held

    def _treat(self, held: list[Delivery]) -> None:
        """Settles some jobs one by one and the others together, and forgets a few, whose leases end."""
        together = []
        for one in held:
            fate = self.random.random()
            if fate < 0.02:
                continue
            if fate < 0.05:
                self._settle("extend", [one], lease_ms=self.options.lease_ms)
            if fate < (0.5 if one.queue == DYING else 0.1):
                self._settle("nack", [one], delay_ms=self.random.choice((0, 0, 300)))
            elif fate < 0.55:
                self._settle("ack", [one])
            else:
                together.append(one)
        if together:
            self._settle("ack", together)

    def _settle(self, verb: str, held: list[Delivery], **members: int) -> None:
        seqs, queue = [one.seq for one in held], held[0].queue
        body = {"node": self.name, "seqs": seqs, "lease_ids": [one.lease_id for one in held], **members}
        started = time.monotonic()
        answer, is_unsure = self.ask(queue, f"/{verb}", body)
        ended = time.monotonic()
        found = orjson.loads(answer.body)
        if verb == "extend":
            deadlines = found["deadlines"]
            extended = [one for one in held if str(one.seq) in deadlines]
            self.jobs.deliveries += [one._replace(deadline_ms=deadlines[str(one.seq)]) for one in extended]
            return
        skipped = set(found["skipped"])
        for one in held:
            outcome = "done" if one.seq not in skipped else "unknown" if is_unsure else "skipped"
            self.jobs.settlements.append(Settlement(verb, queue, one.seq, one.lease_id, outcome, started, ended))


# The laws.


def every_job_is_done_or_buried(jobs: Jobs) -> Verdict:
    """Checks that what was acknowledged as pushed was acked, or is in the dead-letter topic, and that nothing is left."""
    verdict, done, buried = Verdict(), jobs.done(), set(jobs.buried)
    for push in jobs.pushes:
        for one in push.ids:
            verdict.require(one in done or one in buried, "lost", push.queue, one)
    for queue, count in jobs.left.items():
        verdict.require(count == 0, "left", queue, count)
    return verdict


def a_job_is_pushed_once(jobs: Jobs) -> Verdict:
    """Checks that a job has one seq, the one that its push was answered with."""
    verdict = Verdict()
    seqs = {one: push.first_seq + at for push in jobs.pushes for at, one in enumerate(push.ids)}
    for delivery in jobs.deliveries:
        verdict.require(seqs.get(delivery.id) == delivery.seq, delivery, seqs.get(delivery.id))
    return verdict


def an_acked_job_is_never_delivered_again(jobs: Jobs) -> Verdict:
    """Checks that no claim that was sent after an ack had been answered returned the job."""
    verdict = Verdict()
    acked = {
        (one.queue, one.seq): one.ended for one in jobs.settlements if one.verb == "ack" and one.outcome == "done"
    }
    for one in jobs.deliveries:
        ended = acked.get((one.queue, one.seq))
        verdict.require(ended is None or one.started < ended, "acked and delivered", one, ended)
    return verdict


def a_job_is_acked_once(jobs: Jobs) -> Verdict:
    """Checks that at most one lease acked a job."""
    verdict = Verdict()
    leases: dict[tuple[str, int], set[str]] = defaultdict(set)
    for one in jobs.settlements:
        if one.verb == "ack" and one.outcome == "done":
            leases[one.queue, one.seq].add(one.lease_id)
    for job, found in leases.items():
        verdict.require(len(found) == 1, job, found)
    return verdict


def a_redelivery_follows_a_lease_that_ended(jobs: Jobs) -> Verdict:
    """Checks that a job is leased again only after its lease's deadline, or a nack; that deliveries are counted up; and
    that those that nobody saw are no more than the claims whose answer was lost.
    """
    verdict = Verdict()
    nacked: dict[tuple[str, int, str], float] = {
        (one.queue, one.seq, one.lease_id): one.started
        for one in jobs.settlements
        if one.verb == "nack" and one.outcome != "skipped"
    }
    leases: dict[tuple[str, int], dict[str, Delivery]] = defaultdict(dict)
    for one in jobs.deliveries:  # extended ones come last
        leases[one.queue, one.seq][one.lease_id] = one
    for (queue, seq), found in leases.items():
        ordered = sorted(found.values(), key=lambda one: one.number)
        for first, second in pairwise(ordered):
            verdict.require(first.number < second.number, "counted twice", first, second)
            nack = nacked.get((queue, seq, first.lease_id))
            has_ended = second.claimed_ms >= first.deadline_ms or (nack is not None and nack < second.ended)
            verdict.require(has_ended, "leased twice", first, second)
        unseen = ordered[-1].number - len(ordered)
        verdict.require(unseen <= jobs.lost_claims[queue], "unseen deliveries", queue, seq, unseen)
    return verdict


def a_job_is_buried_once_and_only_if_it_may(jobs: Jobs) -> Verdict:
    """Checks that a job is in the dead-letter topic at most once, only after as many deliveries as it may have, and never
    if it was acked.
    """
    verdict = Verdict()
    acked = {(one.queue, one.seq) for one in jobs.settlements if one.verb == "ack" and one.outcome == "done"}
    at = {one.id: (one.queue, one.seq) for one in jobs.deliveries}
    for job, times in Counter(jobs.buried).items():
        verdict.require(times == 1, "buried", times, "times", job)
        verdict.require(at.get(job) not in acked, "acked and buried", job)
    for one in jobs.deliveries:
        verdict.require(one.queue != DYING or one.number <= MAX_DELIVERIES, "delivered too often", one)
    return verdict


LAWS = (
    every_job_is_done_or_buried,
    a_job_is_pushed_once,
    an_acked_job_is_never_delivered_again,
    a_job_is_acked_once,
    a_redelivery_follows_a_lease_that_ended,
    a_job_is_buried_once_and_only_if_it_may,
)


@dataclass
class JobReport:
    """What came of it."""

    options: JobOptions
    jobs: Jobs = field(default_factory=Jobs)
    load_s: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    faults: int = 0
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    rest: Rest = field(default_factory=Rest)
    errors: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    @property
    def pushed(self) -> int:
        """The jobs whose push was acknowledged."""
        return sum(len(push.ids) for push in self.jobs.pushes)

    def problems(self) -> list[str]:
        """Returns every violation of a law and whatever else went wrong; empty if nothing did."""
        found = [f"{law}: {what}" for law, verdict in self.verdicts.items() for what in verdict.broken]
        found += [f"{law}: was never looked at" for law, verdict in self.verdicts.items() if not verdict.checked]
        found += [f"not at rest: {what}" for what in self.rest.unfinished]
        found += [f"damage: {what}" for what in self.rest.damage]
        found += [f"dead letter: {what}" for what in self.rest.dead_letters]
        wanted = self.options.jobs // self.options.producers * self.options.producers
        if self.pushed < wanted or self.kills.total() < self.options.kills:
            found.append(f"the load ended early: pushed={self.pushed} kills={self.kills.total()}")
        return [*self.errors, *found]

    def text(self) -> str:
        """Returns the report as text for people."""
        jobs = self.jobs
        leases = {one.lease_id + str(one.seq) for one in jobs.deliveries}
        numbers = {(one.queue, one.seq) for one in jobs.deliveries}
        settled = Counter(f"{one.verb} {one.outcome}" for one in jobs.settlements)
        answers = Counter({f"{method} {status or 'broken'}": n for (method, status), n in self.answers.items()})
        lines = [
            f"{self.load_s:.0f} s under load, {self.rest.seconds:.0f} s until rest",
            f"jobs: {self.pushed:,} pushed, {len(jobs.done()):,} acked, {len(jobs.buried):,} dead-lettered",
            f"deliveries: {len(leases):,}, of which {len(leases) - len(numbers):,} again; "
            f"{jobs.lost_claims.total():,} claims whose answer was lost",
            f"settled: {', '.join(f'{what} {n:,}' for what, n in sorted(settled.items()))}",
            f"kills: {self.kills.total()}: {', '.join(f'{kind} {n}' for kind, n in sorted(self.kills.items()))}",
            f"answers: {', '.join(f'{what} {n:,}' for what, n in sorted(answers.items()))}",
            f"faults: {self.faults:,}",
            "laws:",
            *(f"  {'held  ' if not v.count else 'BROKEN'} {v.checked:>9,}  {n}" for n, v in self.verdicts.items()),
        ]
        problems = self.problems()
        lines += ["every law held"] if not problems else [f"{len(problems)} problems:", *problems[:30]]
        return "\n".join(lines)


def run(options: JobOptions) -> JobReport:
    """Runs it. Never raises for what the engine does; `JobReport.problems` says it."""
    report = JobReport(options)
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as scratch:
        folder = Path(scratch)
        environment = {
            injector.FOLDER: scratch,
            injector.RATE: str(options.faults),
            injector.SEED: str(options.seed),
        }
        given = arguments(options, template(folder, options.visibility_s))
        with dev_server(*given, environment=environment | NO_METRICS) as server:
            _load(server, report, folder)
            if server.process.poll() is not None:
                report.errors.append(f"the emulator ended with {server.process.returncode}: {server.log[-30:]}")
        report.faults = injector.met(folder).total()
        report.log = server.log
    return report


def _load(server: DevServer, report: JobReport, folder: Path) -> None:
    options, jobs = report.options, report.jobs
    common = Common(server.url, options.seed, options.write_pause_s)
    founder = Founder(common, "founder", jobs, options)
    founder.start()
    founder.join()
    producers = [Producer(common, f"p{number}", jobs, options) for number in range(options.producers)]
    consumers = [Consumer(common, f"w{number}", jobs, options) for number in range(options.workers)]
    done = 0.0
    killer = Killer(server, common.random("killer"), options.kills, options.kill_pause_s, lambda: done, common.stop)
    everybody: list[Person] = [founder, *producers, *consumers]
    started = time.monotonic()
    for thread in [*producers, *consumers, killer]:
        thread.start()
    while time.monotonic() - started < options.limit_s and server.process.poll() is None:
        done = min(1.0, len(jobs.settlements) / options.jobs)
        is_pushed = not any(one.is_alive() for one in producers)
        if (is_pushed and killer.done.total() >= options.kills) or any(one.error for one in everybody):
            break
        time.sleep(0.5)  # between two looks: the threads do the work
    common.stop.set()
    (folder / injector.CALM).touch()
    killer.join(10)
    for one in producers:
        one.join(120)
    _drain(common, report, everybody)
    report.load_s = time.monotonic() - started
    report.errors += [f"{one.name} did not end" for one in everybody if one.is_alive()]
    report.errors += [f"{one.name}: {one.error!r}" for one in everybody if one.error is not None]
    report.errors += common.history.surprises
    report.kills, report.answers = killer.done, sum(common.answers, Counter())
    if server.process.poll() is None:
        report.rest = come_to_rest(server, options.rest_s, options.merge_limits, lambda _: None)
    report.verdicts = {law.__name__: law(jobs) for law in LAWS}


def _drain(common: Common, report: JobReport, everybody: list[Person]) -> None:
    """Waits until the workers have emptied the queues, stops them, and looks at what is left and what was buried."""
    looker = Looker(common, "looker", report.jobs, report.options)
    everybody.append(looker)
    looker.start()
    looker.join(report.options.rest_s + PATIENCE_S)
    report.jobs.settled.set()
    for one in everybody:
        one.join(PATIENCE_S)


class Founder(Person):
    """Creates the queues."""

    def work(self) -> None:
        dying = {"type": "queue", "max_deliveries": MAX_DELIVERIES, "dead_letter": GRAVE}
        for name, config in ((PLAIN, {"type": "queue"}), (DYING, dying), (GRAVE, {})):
            self.client.until({200, 201}, "PUT", name, _HEADERS, orjson.dumps(config))


class Looker(Person):
    """Waits until the queues are empty, and reads the dead-letter topic."""

    def work(self) -> None:
        deadline = time.monotonic() + self.options.rest_s
        while time.monotonic() < deadline:
            for queue in (PLAIN, DYING):
                answer = self.client.until({200}, "GET", queue, {})
                self.jobs.left[queue] = orjson.loads(answer.body)["count"]
            if not any(self.jobs.left.values()):
                break
            self.client.wait()
        cursor, caught_up = 0, False
        while not caught_up:
            answer, _ = self.ask(GRAVE, "/diff", {"from_seq": cursor, "limit": 1000})
            page = orjson.loads(answer.body)
            self.jobs.buried += [record["data"]["id"] for record in page["records"]]
            cursor, caught_up = page["next_from_seq"], page["caught_up"]


def main() -> int:
    """Runs what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.jobs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("jobs", "kills", "producers", "workers", "api_processes", "seed", "faults", "lease_ms", "limit_s"):
        (option,) = (one for one in fields(JobOptions) if one.name == name)
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=type(option.default), default=option.default, help="%(default)s"
        )
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--log", type=Path, help="write what the emulator's processes printed here")
    given = vars(parser.parse_args())
    json_file, log_file = given.pop("json"), given.pop("log")
    report = run(JobOptions(**given))
    print(report.text())
    if json_file is not None:
        verdicts = {name: asdict(verdict) for name, verdict in report.verdicts.items()}
        figures = {"options": asdict(report.options), "verdicts": verdicts, "kills": dict(report.kills)}
        json_file.write_text(json.dumps(figures, indent=2) + "\n")
    if log_file is not None:
        log_file.write_text("\n".join(report.log) + "\n")
    return 1 if report.problems() else 0


if __name__ == "__main__":
    sys.exit(main())
