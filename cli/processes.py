"""Commands that a worker runs: one process group for each job, with the job's data on standard input."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import socket
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from cli.errors import BadInput

STDERR = 2
STOP_S = 5.0
"""How long a process group that is stopped has between SIGTERM and SIGKILL."""


def parse_command(text: str) -> list[str]:
    """Splits a command line as a shell would, and returns the arguments. Raises BadInput if there is no such command."""
    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise BadInput(f"--exec {text!r}: {error}") from error
    if not argv or shutil.which(argv[0]) is None:
        raise BadInput(f"--exec: no such command: {argv[0] if argv else text!r}", "for pipes and the like: sh -c '…'")
    return argv


def worker_name() -> str:
    """Returns a name for this worker that no other one has."""
    return f"{socket.gethostname()[:80]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


async def run(argv: Sequence[str], data: bytes, variables: Mapping[str, str], stdout: IO[Any] | int | None) -> int:
    """Runs a command and returns its exit code; that of a process that a signal ended is negative.

    The data is a file, so a command need not read it. A cancelled call stops the whole process group before it returns.

    Raises:
        OSError: the command can't be started.
    """
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=file,
            stdout=stdout,
            env={**os.environb, **environment(variables)},
            start_new_session=True,
        )
    try:
        return await process.wait()
    except asyncio.CancelledError:
        await stop(process)
        raise


def environment(variables: Mapping[str, str]) -> dict[bytes, bytes]:
    """Encodes variables of any text. What no environment can hold, NUL and unpaired surrogates, is escaped."""
    return {
        name.encode(): text.encode(errors="backslashreplace").replace(b"\0", b"\\u0000")
        for name, text in variables.items()
    }


async def stop(process: asyncio.subprocess.Process) -> None:
    """Stops a process group: SIGTERM, and SIGKILL to what is left of it after 5 s or once its first process has ended."""
    try:
        _signal(process, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_S)
    finally:
        _signal(process, signal.SIGKILL)
    await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
