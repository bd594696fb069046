"""The indexer's queue, for a person who asks it for something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import boto3
import msgspec

from headrace.settings import Settings
from local.cli.errors import BadInput, Unreachable

_BATCH = 10  # SQS


class IndexQueue(NamedTuple):
    """A queue that the indexer listens to."""

    client: Any
    url: str

    def rebuild(self, log_ids: Sequence[str]) -> None:
        """Asks for runs of everything that is published of these logs.

        Raises:
            Unreachable: the queue did not take every message.
        """
        for start in range(0, len(log_ids), _BATCH):
            entries = [
                {
                    "Id": str(number),
                    "MessageBody": msgspec.json.encode({"verb": "rebuild", "log_id": log_id}).decode(),
                }
                for number, log_id in enumerate(log_ids[start : start + _BATCH])
            ]
            failed = self.client.send_message_batch(QueueUrl=self.url, Entries=entries).get("Failed", [])
            if failed:
                raise Unreachable(f"rebuild: the queue refused {len(failed)} messages", "ask again")


def open_queue(settings: Settings) -> IndexQueue:
    """The queue that the settings name.

    Raises:
        BadInput: they name none.
    """
    if not settings.index_queue_url:
        raise BadInput(
            "nothing says which queue the indexer listens to: HEADRACE_INDEX_QUEUE_URL not set",
            "set it as the functions have it, or pass --state-file",
        )
    return IndexQueue(boto3.client("sqs"), settings.index_queue_url)
