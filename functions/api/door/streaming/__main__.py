"""`python -m functions.api.door.streaming`: one instance of the streaming function, until Lambda ends it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from starlette.types import ASGIApp

from functions.api.door.streaming.answer import answer
from functions.api.door.streaming.runtime_api import RuntimeApi, RuntimeApiError
from headrace.clock import Clock, SystemClock


def main() -> None:
    """Answers one invocation after the other. Exits with an error if it can't start or the Runtime API is gone."""
    api = RuntimeApi(os.environ["AWS_LAMBDA_RUNTIME_API"])
    try:
        from functions.api import instance  # reads settings and keys, and may refuse to start
    except Exception as exc:
        api.report(f"Headrace.{type(exc).__name__}", str(exc))
        raise
    serve(instance.app, api, SystemClock(), begin=instance.begin, end=instance.end)


def serve(
    app: ASGIApp, api: RuntimeApi, clock: Clock, *, begin: Callable[[str], None], end: Callable[[], None]
) -> None:
    """Answers invocations, with `begin` (given the request's id) and `end` around each.

    Raises:
        RuntimeApiError, OSError: the Runtime API is gone.
    """
    with asyncio.Runner() as runner:
        while True:
            invocation = api.next()
            begin(invocation.request_id)
            try:
                runner.run(answer(app, api, invocation, clock))
            finally:
                end()


if __name__ == "__main__":
    try:
        main()
    except (RuntimeApiError, OSError) as exc:
        sys.exit(f"{type(exc).__name__}: {exc}")
