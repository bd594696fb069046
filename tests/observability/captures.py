"""What a stage wrote: metrics, as EMF lines, and counts of dead letters. The committed ones are judged with each push.

`uv run python -m tests.observability --capture` stages the faults again and writes them; `--full` judges live stages.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import zstandard

from local.cloudwatch.queries import Alarm, alarms_of, states
from local.cloudwatch.samples import Key, Lapse, Samples, of_emf
from local.template import read_template

FOLDER = Path(__file__).parent / "captures"
FACTOR = 60.0  # a minute of the deployment is a second of a stage
STACK = "headrace-prod"


class Letters(msgspec.Struct, array_like=True, frozen=True):
    """How many messages a dead-letter queue of the template held at a time."""

    at_ms: float
    queue: str
    count: int


class Capture(msgspec.Struct, frozen=True):
    """What alarms are shown of one stage: everything between two times."""

    begin_ms: int
    end_ms: int
    lines: list[str]
    letters: list[Letters]

    @property
    def end_s(self) -> int:
        """When alarms stop to look, in the time of the deployment."""
        return round((self.end_ms - self.begin_ms) * FACTOR / 1000)

    def samples(self) -> Samples:
        """Returns what CloudWatch would have, in the time of the deployment."""
        lapse = Lapse(self.begin_ms, FACTOR)
        found = of_emf(self.lines, lapse)
        for letters in self.letters:
            key = Key("AWS/SQS", "ApproximateNumberOfMessagesVisible", (("QueueName", letters.queue),))
            found.add(key, lapse.at(letters.at_ms), letters.count, "Count")
        return found

    def fired(self, *, fills_empty: bool) -> dict[str, list[int]]:
        """Returns the alarms that went off, each with the times (seconds of the deployment)."""
        samples = self.samples()
        found = {
            alarm.name: [
                at for at, seen in states(alarm, samples, 0, self.end_s, fills_empty=fills_empty) if seen == "ALARM"
            ]
            for alarm in alarms()
        }
        return {name: times for name, times in found.items() if times}


def alarms() -> list[Alarm]:
    """Returns all alarms that the template has."""
    return alarms_of(read_template(), STACK)


def read(name: str) -> Capture:
    """Returns the committed capture of a stage."""
    data = zstandard.ZstdDecompressor().decompress(_path(name).read_bytes())
    return msgspec.json.decode(data, type=Capture)


def write(name: str, capture: Capture) -> None:
    """Writes the capture of a stage into the repository."""
    FOLDER.mkdir(exist_ok=True)
    _path(name).write_bytes(zstandard.ZstdCompressor(level=19).compress(msgspec.json.encode(capture)))


def _path(name: str) -> Path:
    return FOLDER / f"{name}.json.zst"
