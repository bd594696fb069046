"""Messages to later runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from functions.queue import Message, NotQueued, SqsQueue

NOW_MS = 1_700_000_000_000


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
    SqsQueue(client, "url").send([Message("tick", not_before_ms=NOW_MS + delay_ms)], NOW_MS)
    ((entry,),) = client.batches
    assert entry["DelaySeconds"] == delay_s
    assert entry["MessageBody"] == f'{{"verb":"tick","not_before_ms":{NOW_MS + delay_ms}}}'


def test_ten_messages_go_together_and_a_refusal_is_seen() -> None:
    client = Client()
    SqsQueue(client, "url").send([Message("orphans", f"{n}") for n in range(23)], NOW_MS)
    assert [len(batch) for batch in client.batches] == [10, 10, 3]
    assert json.loads(client.batches[2][2]["MessageBody"]) == {"verb": "orphans", "log_id": "22"}
    with pytest.raises(NotQueued):
        SqsQueue(Client(refuses=True), "url").send([Message("tick")], NOW_MS)
