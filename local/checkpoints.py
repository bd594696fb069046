"""Stores how far the reader of a stream has come in a file. A restarted dispatcher continues where its predecessor had
finished. Events that were delivered but not finished are delivered again, as on Lambda.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

# What the emulator's streams keep behind their foremost reader, so that a checkpoint can be read again. AWS keeps 24
# hours. A reader that gets further ahead of its checkpoint than this would lose its way back.
KEPT_RECORDS = 1_000
KEPT_BYTES = 16_000_000


class Position(NamedTuple):
    """A position in a shard, in the form that GetShardIterator takes."""

    kind: Literal["TRIM_HORIZON", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"]
    sequence: str = ""


OLDEST = Position("TRIM_HORIZON")


@dataclass
class Checkpoint:
    """The stored position of one reader. Without a `path` it is kept only in memory."""

    path: Path | None = None
    position: Position = OLDEST

    def load(self) -> Position:
        """Returns the position that any process saved last; the oldest position if none was saved."""
        if self.path is not None and self.path.exists():
            kind, _, sequence = self.path.read_text().partition(" ")
            assert kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"), f"not a checkpoint: {self.path}"
            self.position = Position(kind, sequence)  # type: ignore[arg-type]
        return self.position

    def save(self, position: Position) -> None:
        """Saves the position atomically: a process killed meanwhile leaves the previous one."""
        if position == self.position:
            return
        self.position = position
        if self.path is not None:
            scratch = self.path.with_suffix(".new")
            scratch.write_text(f"{position.kind} {position.sequence}")
            scratch.replace(self.path)
