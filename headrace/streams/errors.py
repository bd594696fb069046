"""The errors that only requests to streams have.

Conflict
├── StreamClosed      the stream is closed for appends
├── SequenceConflict  Stream-Seq is not above the last one
└── ProducerGap       a producer skipped a sequence number
StaleProducer         a newer epoch of this producer exists
"""

from __future__ import annotations

from headrace.errors import Conflict, HeadraceError


class StreamClosed(Conflict):
    """The stream is closed for appends.

    Attributes:
        next_offset: the final offset as a cursor text.
    """

    def __init__(self, next_offset: str) -> None:
        super().__init__("stream is closed")
        self.next_offset = next_offset


class SequenceConflict(Conflict):
    """`Stream-Seq` is not above the last one accepted."""

    def __init__(self, expected: str, received: str) -> None:
        super().__init__(f"stream sequence did not rise: last={expected} received={received}")
        self.expected = expected
        self.received = received


class ProducerGap(Conflict):
    """A producer skipped a sequence number in its epoch."""

    def __init__(self, expected: int, received: int) -> None:
        super().__init__(f"producer sequence has a gap: expected={expected} received={received}")
        self.expected = expected
        self.received = received


class StaleProducer(HeadraceError):
    """A newer epoch of this producer has written, so this one may not write any more."""

    code = "forbidden"

    def __init__(self, epoch: int) -> None:
        super().__init__(f"producer epoch is stale: current={epoch}")
        self.epoch = epoch
