"""The port `headrace.subscriptions.delivery.Deliver` on the function that posts webhooks. Only it calls strangers, and it
may touch no table; the relay waits for what it says.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from headrace import decoding
from headrace.subscriptions.delivery import Delivered

_log = logging.getLogger(__name__)


class Invokes(Protocol):
    """The part of the Lambda client that is used here."""

    def invoke(self, *, FunctionName: str, Payload: bytes) -> Any:  # noqa: N803
        """Runs a function, and waits for its result."""


class WebhookFunction:
    """Posts webhooks by a function of this deployment."""

    def __init__(self, client: Invokes, name: str) -> None:
        self._client = client
        self._name = name

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Delivered:
        """Posts a webhook. If the function could not be called, or failed, there was no answer."""
        event = msgspec.json.encode({"url": url, "body": body.decode(), "headers": dict(headers)})
        try:
            answer = self._client.invoke(FunctionName=self._name, Payload=event)
            result = answer["Payload"].read()
            if "FunctionError" in answer:
                raise ValueError(f"it failed: {answer['FunctionError']}")
            return decoding.from_json(result, Delivered)
        except (BotoCoreError, ClientError, ValueError, KeyError) as exc:
            _log.error("the function that posts webhooks gave no result: reason=%r", exc)
            return Delivered(0, error="not posted")


class NoWebhooks:
    """Posts nothing: for deployments and tests without webhooks."""

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Delivered:  # noqa: ARG002
        """Returns that there was no answer."""
        return Delivered(0, error="there is no function that posts webhooks")
