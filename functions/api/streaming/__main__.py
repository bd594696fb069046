"""`python -m functions.api.streaming`: one instance of the streaming function, until Lambda ends it."""

from __future__ import annotations

import asyncio
import os
import sys

from functions.api.streaming.answer import answer
from functions.api.streaming.runtime_api import RuntimeApi, RuntimeApiError
from headrace.clock import SystemClock


def main() -> None:
    """Answers one invocation after the other. Exits with an error if it can't start or the Runtime API is gone."""
    api = RuntimeApi(os.environ["AWS_LAMBDA_RUNTIME_API"])
    try:
        from functions.api import instance  # reads settings and keys, and may refuse to start
    except Exception as exc:
        api.report(f"Headrace.{type(exc).__name__}", str(exc))
        raise
    clock = SystemClock()
    with asyncio.Runner() as runner:
        while True:
            invocation = api.next()
            instance.begin(invocation.request_id)
            try:
                runner.run(answer(instance.app, api, invocation, clock))
            finally:
                instance.end()


if __name__ == "__main__":
    try:
        main()
    except RuntimeApiError as exc:
        sys.exit(str(exc))
