"""Runs queues on the emulator under HTTP faults and kills, and says whether every law held. Exit code 1 if one did not.

    uv run python -m tests.chaos.jobs --jobs 20000 --kills 100

Producers push jobs, each batch under an idempotency key until it is acknowledged. Workers claim, and ack, nack, extend or
forget what they hold. API processes, the sealer and the dispatcher are killed all the while.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from tests.chaos import injector
from tests.chaos.client import JSON, NOTHING_WRITTEN, PATIENCE_S, UNKNOWN, Answer, Impatient
from tests.chaos.job_laws import DYING, GRAVE, MAX_DELIVERIES, PLAIN, Delivery, Jobs, Push, Settlement, judge
from tests.chaos.killer import Killer
from tests.chaos.load import Common, Worker
from tests.chaos.rest import come_to_rest
from tests.chaos.run import Options, Outcome, command, faulty_server
from tests.support.emulated_cloud import DevServer

_HEADERS = {"Content-Type": JSON}


@dataclass(frozen=True)
class JobOptions(Options):
    """What to run: until so many jobs are pushed and done and so many processes killed, or the time is over."""

    jobs: int = 20_000
    producers: int = 8
    workers: int = 8
    lease_ms: int = 4_000


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
            queue = DYING if self.random.random() < 0.3 else PLAIN
            records = [{"data": {"id": one, "pad": "x" * self.random.randrange(60)}} for one in ids]
            answer, _ = self.ask(queue, "", {"records": records, "idempotency_key": ids[0]})
            self.jobs.pushes.append(Push(queue, ids, orjson.loads(answer.body)["first_seq"]))
            pushed += count
            self.common.stop.wait(self.random.random() * 2 * self.common.pause_s)


class Consumer(Person):
    """Claims jobs, and acks, nacks, extends or forgets them."""

    def work(self) -> None:
        while not self.jobs.settled.is_set():
            queue = DYING if self.random.random() < 0.3 else PLAIN
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


@dataclass
class JobReport(Outcome):
    """What came of it."""

    jobs: Jobs = field(default_factory=Jobs)

    @property
    def pushed(self) -> int:
        """The jobs whose push was acknowledged."""
        return sum(len(push.ids) for push in self.jobs.pushes)

    def problems(self) -> list[str]:
        """Returns every violation of a law and whatever else went wrong; empty if nothing did."""
        found = self.broken()
        wanted = self.options.jobs // self.options.producers * self.options.producers
        if self.pushed < wanted or self.kills.total() < self.options.kills:
            found.append(f"the load ended early: pushed={self.pushed} kills={self.kills.total()}")
        return found

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
            f"faults: {self.faults.total():,}",
            "laws:",
            *(f"  {'held  ' if not v.count else 'BROKEN'} {v.checked:>9,}  {n}" for n, v in self.verdicts.items()),
        ]
        problems = self.problems()
        lines += ["every law held"] if not problems else [f"{len(problems)} problems:", *problems[:30]]
        return "\n".join(lines)


def run(options: JobOptions, then: Callable[[DevServer, Path], None] | None = None) -> JobReport:
    """Runs it, and then something else on the same server. Never raises for what the engine does; `JobReport.problems` says
    it.
    """
    report = JobReport(options)
    with faulty_server(options, report) as (server, folder):
        _load(server, report, folder)
        if then is not None:
            then(server, folder)
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
    while time.monotonic() - started < options.limit_s and not server.has_ended:
        done = min(1.0, len(jobs.settlements) / options.jobs)
        is_pushed = not any(one.is_alive() for one in producers)
        if (is_pushed and killer.done.total() >= options.kills) or any(one.error for one in everybody):
            break
        time.sleep(0.5)  # between two looks: the threads do the work
    common.stop.set()
    (folder / injector.CALM).touch()
    killer.join(60)  # a whole server may be starting again
    for one in producers:
        one.join(120)
    _drain(common, report, everybody)
    report.load_s = time.monotonic() - started
    report.errors += [f"{one.name} did not end" for one in everybody if one.is_alive()]
    report.errors += [f"{one.name}: {one.error!r}" for one in everybody if one.error is not None]
    report.errors += common.history.surprises
    report.kills, report.answers = killer.done, sum(common.answers, Counter())
    if not server.has_ended:
        report.rest = come_to_rest(server, options.rest_s, options.merge_limits, lambda _: None)
    report.verdicts = judge(jobs)


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
    names = ("jobs", "kills", "producers", "workers", "api_processes", "seed", "faults", "lease_ms", "limit_s")
    return command("tests.chaos.jobs", __doc__, JobOptions, names, run)


if __name__ == "__main__":
    sys.exit(main())
