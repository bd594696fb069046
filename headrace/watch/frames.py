"""What a consumer that follows a topic is sent: records, the gaps that it must learn of, that it has caught up, and that
the topic is gone (§ 7.5). Pure rules over the pages that are read for it; how a frame is written is the door's business.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from headrace.batch import Record
from headrace.topics.diff import Reason
from headrace.topics.values import DiffPage


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a consumer is in a topic: it has everything up to `seq`, of the topic in this incarnation.

    Attributes:
        incarnation: None until the topic was read, and then the cursor is the number that the consumer gave.
        seq: the last seq that it has, or that is not for it.
        head_seq: the newest seq of the topic, as far as it was told.
        is_live: whether it was told that it has caught up, and no backlog was seen since.
        is_open: whether its connection has read the topic. Until then a gap was there before the connection.
    """

    incarnation: int | None = None
    seq: int = 0
    head_seq: int = 0
    is_live: bool = False
    is_open: bool = False


class Records(NamedTuple):
    """The frame with the next records: the consumer asked for those after `from_seq`, and has all up to `seq` then."""

    seq: int
    from_seq: int
    head_seq: int
    records: list[Record]


class Tombstone(NamedTuple):
    """The frame about records that are lost for the consumer: the seqs `[gap_from, gap_to]`."""

    seq: int
    gap_from: int
    gap_to: int
    reason: Reason | Literal["from_seq_too_old"]
    earliest_seq: int
    head_seq: int


class CaughtUp(NamedTuple):
    """The frame that tells that a consumer has everything, after a backlog; `seq` is the newest seq of the topic."""

    seq: int

    @property
    def head_seq(self) -> int:
        """The newest seq of the topic."""
        return self.seq


class TopicDeleted(NamedTuple):
    """The last frame of a topic, which is gone."""

    seq: int
    head_seq: int
    reason: Literal["deleted"] = "deleted"


Frame = Records | Tombstone | CaughtUp | TopicDeleted
"""A frame. `seq` is the consumer's cursor in the topic after it; that before is in the frame before, or the position."""


def advance(position: Position, page: DiffPage) -> tuple[Position, list[Frame]]:
    """Returns the frames that tell a consumer of the page after its position, and its position after them. There may be no
    frame although the position moves: records may be deleted, or the consumer's own.

    Args:
        page: what a read from `position.seq` with `position.incarnation` returned.
    """
    frames: list[Frame] = []
    seq, is_live = position.seq, position.is_live
    if page.gap is not None:
        seq = page.earliest_seq - 1
        frames.append(_tombstone(position, page, seq))
        is_live = False
    if page.records:
        frames.append(Records(page.next_seq, seq, page.head_seq, page.records))
    if page.caught_up and not is_live:
        frames.append(CaughtUp(page.head_seq))
    after = Position(page.incarnation, page.next_seq, page.head_seq, page.caught_up, is_open=True)
    return after, frames


def _tombstone(position: Position, page: DiffPage, seq: int) -> Tombstone:
    assert page.gap is not None, "the caller has looked"
    is_old = not position.is_open and page.gap.reason != "recreated"
    reason = "from_seq_too_old" if is_old else page.gap.reason
    return Tombstone(seq, page.gap.first, page.gap.last, reason, page.earliest_seq, page.head_seq)


def end(position: Position) -> TopicDeleted:
    """Returns the frame that tells a consumer that its topic is gone."""
    return TopicDeleted(position.seq, max(position.seq, position.head_seq))


def reopen(position: Position) -> Position:
    """Returns the position from which a new connection of the consumer goes on."""
    return replace(position, is_live=False, is_open=False)
