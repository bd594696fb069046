"""A topic as a list of records, each alive or dead of something: the rules without marks, runs or floors."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.topics.values import Match, TopicConfig
from tests.support.tags import matches


@dataclass
class Line:
    """One record."""

    time_ms: int
    size: int
    tag: str | None
    node: str | None
    death: str = ""


@dataclass
class Model:
    """A topic. The clock never runs backwards here."""

    config: TopicConfig = field(default_factory=TopicConfig)
    lines: list[Line] = field(default_factory=list)

    @property
    def live(self) -> list[int]:
        """The seqs that live."""
        return [seq for seq, line in enumerate(self.lines, 1) if not line.death]

    @property
    def bytes(self) -> int:
        """The bytes that live."""
        return sum(line.size for line in self.lines if not line.death)

    @property
    def earliest(self) -> int:
        """The first seq that lives, or the next one."""
        return min(self.live, default=len(self.lines) + 1)

    @property
    def evicted(self) -> int:
        """The seq after the last one that a cap or the TTL took."""
        return max((seq + 1 for seq, line in enumerate(self.lines, 1) if line.death in ("cap", "ttl")), default=0)

    def at(self, now_ms: int) -> None:
        """Lets records expire."""
        if self.config.ttl_ms:
            for line in self.lines:
                if not line.death and line.time_ms < now_ms - self.config.ttl_ms:
                    line.death = "ttl"

    def append(self, lines: list[Line], now_ms: int) -> bool:
        """Appends records; returns whether they fit."""
        self.at(now_ms)
        if self.config.discard == "reject" and self._is_over(
            len(self.live) + len(lines), self.bytes + sum(line.size for line in lines)
        ):
            return False
        self.lines += lines
        while self.config.discard == "old" and len(self.live) > 1 and self._is_over(len(self.live), self.bytes):
            self.lines[self.live[0] - 1].death = "cap"
        return True

    def _is_over(self, live: int, size: int) -> bool:
        return 0 < self.config.cap_records < live or 0 < self.config.cap_bytes < size

    def erase(self, before_seq: int | None, match: Match | None) -> int:
        """Deletes; returns how many."""
        victims = [
            seq
            for seq in self.live
            if (before_seq is None or seq < before_seq) and matches(match, self.lines[seq - 1].tag)
        ]
        for seq in victims:
            self.lines[seq - 1].death = "delete"
        return len(victims)
