"""Messages to later runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from functions.indexer.queue import Message, NotQueued, SqsQueue


class Client:
    """Takes what it is given, or refuses the first message of each batch."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.batches: list[list[dict[str, Any]]] = []
        self._refuses = refuses

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        assert QueueUrl == "url"
        self.batches.append(Entries)
        return {"Failed": [{"Id": Entries[0]["Id"]}]} if self._refuses else {}


@pytest.mark.parametrize(("delay_ms", "delay_s"), [(0, 0), (1, 1), (1000, 1), (1001, 2), (10**9, 900), (-5, 0)])
def test_a_delay_is_rounded_up_to_what_the_queue_can_do(delay_ms: int, delay_s: int) -> None:
    client = Client()
    SqsQueue(client, "url").send([Message("tick")], delay_ms)
    ((entry,),) = client.batches
    assert (entry["DelaySeconds"], entry["MessageBody"]) == (delay_s, '{"verb":"tick"}')


def test_ten_messages_go_together_and_a_refusal_is_seen() -> None:
    client = Client()
    SqsQueue(client, "url").send([Message("orphans", f"{n}") for n in range(23)])
    assert [len(batch) for batch in client.batches] == [10, 10, 3]
    assert json.loads(client.batches[2][2]["MessageBody"]) == {"verb": "orphans", "log_id": "22"}
    with pytest.raises(NotQueued):
        SqsQueue(Client(refuses=True), "url").send([Message("tick")])
