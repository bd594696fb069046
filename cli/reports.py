"""Reports of a worker: what happens, to people or to scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn
from rich.text import Text

from cli.jobs import Job
from cli.options import json_bytes
from cli.output import Label
from cli.terminal import clean, console, output, say
from cli.units import format_duration


class EventLog:
    """A reporter of a worker's events: lines and, on a terminal, a line of progress on standard error; or JSON lines on
    standard output.

    Args:
        title: what the worker works on.
        texts: what is said about events to people; the others are only counted.
        ends: what can become of something that has begun, `done` first.
    """

    def __init__(self, title: str, texts: Mapping[str, str], ends: Sequence[str], *, as_json: bool) -> None:
        self._texts = texts
        self._ends = ends
        self._as_json = as_json
        self._out = output()
        self._counts: Counter[str] = Counter()
        to = console(err=True)
        self._progress = Progress(
            SpinnerColumn(),
            Label(),
            TimeElapsedColumn(),
            console=to,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=as_json or not to.is_terminal,
        )
        self._title = title
        self._task = self._progress.add_task(title, total=None)

    def __enter__(self) -> EventLog:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self.event("ended", None, **{name: self._counts[name] for name in self._ends})

    def event(self, name: str, job: Job | None = None, **facts: object) -> None:
        """Reports an event, of a job in hand or of the worker."""
        self._counts[name] += 1
        if job is not None:
            facts = {"seq": job.seq, "deliveries": job.deliveries, **facts}
        if self._as_json:
            self._out.write(json_bytes({"event": name, **facts}) + b"\n")
            self._out.flush()
        elif name == "ended":
            say(self._summary(), err=True)
        elif name in self._texts:
            text = self._texts[name].format(**for_people(facts))
            if self._progress.disable:
                say(text, err=True)
            else:
                self._progress.console.print(Text(clean(text)))
        running = self._counts["begun"] - sum(self._counts[end] for end in self._ends)
        self._progress.update(self._task, description=f"{self._title}: {self._summary()}; {max(running, 0)} running")

    def _summary(self) -> str:
        """Returns how many ended how, without what did not happen."""
        others = [f"{self._counts[name]:,} {name}" for name in self._ends[1:] if self._counts[name]]
        return ", ".join([f"{self._counts['done']:,} done", *others])


def for_people(facts: Mapping[str, object]) -> dict[str, object]:
    """Returns an event's facts with durations as people write them, and `why` a command failed."""
    shown = {
        name.removesuffix("_ms"): duration(fact) if name.endswith("_ms") else fact for name, fact in facts.items()
    }
    code = facts.get("exit_code")
    died = isinstance(code, int) and code < 0
    shown["why"] = (
        f"signal {-int(str(code))}" if died else f"exit code {code}" if code is not None else facts.get("reason")
    )
    return {"retry_in": "a while", **shown}


def duration(milliseconds: object) -> str:
    """Returns a duration for people: seconds with a fraction, or what `format_duration` makes of whole ones."""
    whole = int(str(milliseconds))
    return format_duration(whole) if whole % 1000 == 0 else f"{whole / 1000:.1f}s"
