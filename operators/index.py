"""The command `headrace index rebuild`: sends the indexer a message to build index runs again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from cli.errors import BadInput, Unreachable
from cli.tables import counted
from cli.terminal import say
from headrace.settings import Settings
from operators.stores import aws_client, logs_of, state_file_option, store_errors

if TYPE_CHECKING:
    from headrace.log.stores import Stores

_BATCH = 10  # SQS
REBUILD_EPILOG = """\b
Normal operation never needs it: a changed search configuration, a new schema version or a lost job leads to new runs by
itself. Use it for a run whose objects were damaged or removed by hand.

\b
What happens: the indexer takes every run of the stream out of use, and builds new ones from its segments. Until that is
done searches look at the segments themselves, as far as a request's time allows, and say what they left out. `headrace
index wait NAME` follows it, once it has begun.

\b
Examples:
  headrace index rebuild logs
  headrace index rebuild logs --state-file dev.json       # of `headrace dev --state-file dev.json`

\b
Exit codes: 0 asked for, 1 no such name, 2 wrong usage, 3 AWS does not answer."""


@click.command(epilog=REBUILD_EPILOG)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@state_file_option
def rebuild(stores: Stores, names: tuple[str, ...]) -> None:
    """Ask the indexer to build the index runs of the streams NAME again.

    The command talks to AWS itself, not to a server, and returns as soon as the message is in the queue.
    """
    with store_errors("rebuild"):
        hint = "`headrace list` shows what exists"
        log_ids = [log_id for name in names for log_id in logs_of(stores, name, hint)]
        open_queue(stores.settings).rebuild(log_ids)
    for name in names:
        say(f"asked for a rebuild of {name}")


class IndexQueue(NamedTuple):
    """The queue from which the indexer takes requests."""

    client: Any
    url: str

    def rebuild(self, log_ids: Sequence[str]) -> None:
        """Sends messages that ask the indexer to build new runs of everything published in these logs.

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
                raise Unreachable(
                    f"rebuild: the queue refused {counted(len(failed), 'message')}", "run the command again"
                )


def open_queue(settings: Settings) -> IndexQueue:
    """Opens the indexer's queue that the settings name.

    Raises:
        BadInput: the settings name no queue.
    """
    if not settings.index_queue_url:
        raise BadInput(
            "HEADRACE_INDEX_QUEUE_URL is not set: the indexer's queue is unknown",
            "set it as the functions have it, or pass --state-file",
        )
    return IndexQueue(aws_client("sqs"), settings.index_queue_url)
