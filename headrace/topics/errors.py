"""The errors that only requests to topics and queues have; `code` is the contract's (§ 0.6).

InvalidRequest
├── BatchTooLarge     more records, or more seqs, than one request may have
└── RecordTooLarge    a record is larger than one may be
NotFound
└── TopicNotFound
Conflict
├── Incompatible      the topic exists with another type
├── Routed            a delete of a topic that has routers, which go first
├── NotEmpty          a delete with `if_empty` of a topic that has records
└── NotAQueue         a queue's request to a topic that is none
TopicFull             a topic that refuses when it is full
"""

from __future__ import annotations

from headrace.errors import Conflict, HeadraceError, InvalidRequest, NotFound


class BatchTooLarge(InvalidRequest):
    """The request has more records, or more seqs, than one may have."""

    code = "batch_too_large"


class RecordTooLarge(InvalidRequest):
    """A record is larger than one may be."""

    code = "record_too_large"


class TopicNotFound(NotFound):
    """There is no topic with this name, and the request does not create one."""

    code = "topic_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f'topic "{name}" does not exist')
        self.detail = {"topic": name}


class Incompatible(Conflict):
    """The topic exists with another type."""

    code = "topic_exists_incompatible"


class NotEmpty(Conflict):
    """The topic has records, and was to be deleted only if it has none."""

    code = "topic_not_empty"


class Routed(Conflict):
    """A router copies from the topic or into it: it must go first."""

    code = "topic_routed"


class NotAQueue(Conflict):
    """The topic is not a queue."""

    code = "not_a_queue"

    def __init__(self, name: str) -> None:
        super().__init__(f'topic "{name}" is not a queue')
        self.detail = {"topic": name}


class TopicFull(HeadraceError):
    """The topic is full and discards nothing: the write, or a part of it, would go beyond a cap.

    Attributes:
        detail: the caps, and what the topic holds.
    """

    code = "topic_full"

    def __init__(self, name: str, detail: dict[str, int]) -> None:
        super().__init__(f'topic "{name}" is full')
        self.detail: dict[str, object] = {"topic": name, **detail}
