"""The Lambda entry of the webhooks' function: posts one webhook, and returns what became of it.

    {"url", "body", "headers"} → {"status", "done", "error"}

What a receiver does is never an error of the function. Its caller signs, decides when to repeat, and writes the outcome.
"""

from __future__ import annotations

import functools
import os
import ssl
import time
from typing import Any

import msgspec
from aws_lambda_powertools import Logger

from functions.webhook.post import addresses_of, post
from headrace import decoding
from headrace.settings import Settings

logger = Logger(service="webhook")


class Event(msgspec.Struct, frozen=True):
    """What the function is asked to post."""

    url: str
    body: str
    headers: dict[str, str]


@functools.cache
def _settings() -> Settings:
    return Settings.from_environment(os.environ)


@functools.cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


def handler(event: Any, _: object = None) -> dict[str, Any]:
    """Posts the webhook that the event holds. Raises msgspec.ValidationError for an event of another form."""
    asked = decoding.from_builtins(event, Event)
    began = time.monotonic()
    delivered = post(
        asked.url,
        asked.body.encode(),
        asked.headers,
        allow_loopback=_settings().webhook_loopback,
        context=_trust(),
        resolve=addresses_of,
    )
    # Neither the URL, which may hold a secret of its owner, nor a body or token.
    logger.info(
        "posted",
        extra={
            "status": delivered.status,
            "done": delivered.done,
            "error": delivered.error,
            "ms": round((time.monotonic() - began) * 1000),
        },
    )
    answer: dict[str, Any] = msgspec.to_builtins(delivered)
    return answer
