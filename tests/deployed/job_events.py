"""Job-state events on their way from EMR Serverless to what the deployed rule names.

On AWS the service itself puts them on the bus. Nobody else may send events of a source that begins with `aws.`, on AWS and
in the emulator. So the emulator is asked whether the deployed rule's pattern matches each event, and the rule's target is
invoked with those that do.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from local.emr_serverless import EVENTS_PATH
from tests.deployed.deploy import Stack

RULE = "IndexerTriggersJobState"
WAIT_S = 2


@dataclass
class Relayed:
    """States that were told, and those of them that the rule let through."""

    told: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)


@contextmanager
def relay(stack: Stack, emr_endpoint: str) -> Iterator[Relayed]:
    """Relays for as long as the block lasts."""
    relayed, stop = Relayed(), threading.Event()
    thread = threading.Thread(target=_relay, args=(stack, emr_endpoint, relayed, stop), daemon=True)
    thread.start()
    try:
        yield relayed
    finally:
        stop.set()
        thread.join(2 * WAIT_S)


def _relay(stack: Stack, emr_endpoint: str, relayed: Relayed, stop: threading.Event) -> None:
    events, functions = stack.emulator.client("events"), stack.emulator.client("lambda")
    rule = stack.physical("AWS::Events::Rule", holding=RULE)
    pattern = events.describe_rule(Name=rule)["EventPattern"]
    (target,) = events.list_targets_by_rule(Rule=rule)["Targets"]
    after = 0
    while not stop.is_set():
        found = _events(emr_endpoint, after)
        after = found["newest"]
        for event in found["events"]:
            relayed.told.append(event["detail"]["state"])
            if events.test_event_pattern(EventPattern=pattern, Event=json.dumps(event))["Result"]:
                relayed.passed.append(event["detail"]["state"])
                with suppress(functions.exceptions.ResourceNotFoundException):  # it was removed while the job ran
                    functions.invoke(FunctionName=target["Arn"], InvocationType="Event", Payload=json.dumps(event))


def _events(emr_endpoint: str, after: int) -> Any:
    with urllib.request.urlopen(f"{emr_endpoint}{EVENTS_PATH}?after={after}&wait={WAIT_S}", timeout=30) as answer:
        return json.loads(answer.read())
