"""Calls that block (every store call does), from coroutines.

A Lambda function serves one request at a time, so there a call runs where it stands. A server of many requests runs it
in a thread; nothing holds a thread while it merely waits for time to pass.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Appends wait in their thread for a group commit: fewer threads than concurrent writers would make groups small.
_THREADS = 128
_pool: ThreadPoolExecutor | None = None


def on_lambda() -> bool:
    """This process is a Lambda function."""
    return "AWS_LAMBDA_FUNCTION_NAME" in os.environ


def capacity() -> int:
    """How many calls run at once."""
    return 1 if on_lambda() else _THREADS


async def run(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Makes the call and gives its result."""
    global _pool
    if on_lambda():
        return call(*args, **kwargs)
    if _pool is None:
        _pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="store")
    return await asyncio.get_running_loop().run_in_executor(_pool, lambda: call(*args, **kwargs))
