"""The command `headrace dev`: runs the whole deployment on this machine, in memory or in a folder, behind one port."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from cli.units import Duration, Size
from local.dev_settings import DevSettings, InvalidSettings
from local.fork_server import PROCESSES, fork_server
from local.supervisor import ChildFailed
from local.template import TEMPLATE_PATH, UnusableTemplate

PATIENCE_SECONDS = 5.0

EXAMPLES = """
Runs Headrace on this machine: the HTTP API, the functions behind it, and an emulated AWS. Nothing is installed, no
account is needed, nothing leaves the machine, and everything is forgotten at the end, unless --data names a folder to
keep it in. When it is ready it prints its URL and what to try; logs go to stderr. Ctrl-C stops it.

\b
Start it, then write to a stream and read it back:
  headrace dev
  curl -X PUT http://127.0.0.1:8787/v1/stream/orders -H 'content-type: text/plain'
  curl -X POST http://127.0.0.1:8787/v1/stream/orders -H 'content-type: text/plain' -d hello
  curl http://127.0.0.1:8787/v1/stream/orders

\b
Keep everything: what was acknowledged is on the disk, whatever ends the server, and the next one goes on with it:
  headrace dev --data ./headrace-data

\b
Watch the pipeline: seal after a second, or ten records, and trim after two minutes:
  headrace dev --seal-age 1s --seal-records 10 --trim-age 2m

\b
Watch indexing, too: run an index job for each sealed segment after a second, and merge runs in pairs:
  headrace dev --seal-age 1s --index-age 1s --index-segments 1 --compact-fanout 2

\b
Find out whether a client relies on what one process remembers: each request goes to the next of three processes,
which forget everything after it:
  headrace dev --api-processes 3 --cold

\b
Serve through the streaming door of a deployment: four instances of the function, started as on Lambda:
  headrace dev --function-url --api-processes 4

\b
Let other machines in. That needs keys, each with its scopes and name prefixes:
  headrace dev --host 0.0.0.0 --require-key --state-file dev.json
  headrace key create --scope read --prefix demo/ --state-file dev.json

\b
Without keys it obeys programs of this machine and pages on loopback, such as http://localhost:5173, and refuses the
pages of other sites that a browser here may show (403). Obey one more host, knowingly:
  headrace dev --allow-host demo.internal
"""

NEXT = """
Try, in another terminal:
  curl -X PUT {url}/v1/stream/hello -H 'content-type: application/json'
  curl -X POST {url}/v1/stream/hello -H 'content-type: application/json' -d '{{"hello":"world"}}'
  curl {url}/v1/stream/hello
In a browser: {url}/ (console), {url}/docs (reference of the API). Ctrl-C stops the server."""


NEXT_WITH_KEY = """
Requests need a key. Try, in another terminal:
  export HEADRACE_API_KEY=$(headrace key create --scope all --state-file {state_file})
  headrace --url {url} create hello
In a browser: {url}/ (console), {url}/docs (reference of the API). Ctrl-C stops the server."""


@click.command("dev", help=EXAMPLES)
@click.option("--port", default=8787, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Without keys: obey this host, too, as Host and Origin, such as the name of a container; * is any. "
    "May be given more than once. [default: loopback only]",
)
@click.option(
    "--api-processes",
    default=1,
    show_default=True,
    type=click.IntRange(1, 32),
    metavar="N",
    help="API processes behind the port, taking requests in turn.",
)
@click.option("--cold", is_flag=True, help="Forget everything after each request, as a new instance would.")
@click.option(
    "--function-url",
    is_flag=True,
    help="Serve as the streaming Lambda function: behind a Function URL, N instances, one request each at a time.",
)
@click.option("--seal-records", type=click.IntRange(1), metavar="N", help="Seal when this many records wait.")
@click.option("--seal-bytes", type=Size(), help="Seal when this many bytes wait, such as 64KiB or 16MiB.")
@click.option("--seal-age", type=Duration(), help="Seal what has waited this long, such as 1s or 5m.")
@click.option("--trim-age", type=Duration(), help="Trim from the WAL what was sealed and is this old.")
@click.option(
    "--index-age", type=Duration(), help="Index what was sealed and has waited this long, such as 1s or 1m."
)
@click.option("--index-segments", type=click.IntRange(1), metavar="N", help="Index when this many segments wait.")
@click.option(
    "--compact-fanout", type=click.IntRange(2), metavar="N", help="Merge this many neighbouring index runs."
)
@click.option(
    "--merge-segments",
    type=click.IntRange(0),
    metavar="N",
    help="Merge this many small neighbouring segments; 0 merges none.",
)
@click.option("--merge-age", type=Duration(), help="Merge only segments that are this old.")
@click.option("--merge-retire", type=Duration(), help="Keep merged segments for this long.")
@click.option(
    "--index-jobs",
    type=click.IntRange(0, 8),
    metavar="N",
    help="Index jobs that may run at once; 0 runs none, and no Java.",
)
@click.option("--state-age", type=Duration(), help="How long an API process may rely on what it remembers.")
@click.option("--sweep-every", type=Duration(), help="Run scheduled functions at this period, not the template's.")
@click.option("--seed", type=int, default=0, show_default=True, help="Decides the order of events across logs.")
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"]),
)
@click.option(
    "--state-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write pids, ports and resource names here as JSON when ready, and when they change.",
)
@click.option(
    "--metrics-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append the metrics of the api and the functions to this file, as CloudWatch would get them. [default: none]",
)
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Record in this file, as lines of JSON, which AWS calls each function makes.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep everything in this folder, and go on with what it holds. [default: forget it at the end]",
)
@click.option(
    "--require-key",
    is_flag=True,
    help="Serve only requests with a key, as a deployment does; `headrace key` makes keys, and needs --state-file.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print one line for each request.")
@click.option(
    "--template", hidden=True, default=TEMPLATE_PATH, type=click.Path(path_type=Path), help="A CDK template."
)
@click.option("--app", hidden=True, envvar="HEADRACE_DEV_APP", default="functions.api.app:create_app")
@click.option(
    "--sockets", hidden=True, envvar="HEADRACE_DEV_SOCKETS", default="functions.api.sockets.handler.handler"
)
def command(**options: Any) -> None:
    """Runs the emulator until Ctrl-C, SIGTERM, or the end of a child."""
    # Not needed for `--help`.
    from headrace.errors import StoreError
    from local.emulator import Emulator
    from local.machine.database import NewerDatabase
    from local.machine.stack import FolderUnusable, MachineDeployment

    state_file: Path | None = options["state_file"]
    try:
        settings = DevSettings.from_options(options, os.environ)
        stop = _stop_on_signal()
        with ExitStack() as exits:
            machine = exits.enter_context(MachineDeployment(settings.data)) if settings.data is not None else None
            listener = _listen(settings.host, settings.port, patient=machine is not None)
            scratch = exits.enter_context(tempfile.TemporaryDirectory(prefix="headrace-dev-"))
            forks = exits.enter_context(fork_server(*PROCESSES))
            emulator = exits.enter_context(Emulator(settings, listener, forks, machine))
            emulator.start(Path(scratch), stop)

            def note_state() -> None:
                if state_file is not None:
                    _write(state_file, emulator.state())

            note_state()
            if not stop.is_set():
                text = NEXT_WITH_KEY if settings.require_key else NEXT
                click.echo(
                    f"headrace is ready at {emulator.url}\n{text.format(url=emulator.url, state_file=state_file)}"
                )
            emulator.watch(stop, note_state)
    except InvalidSettings as exc:
        raise click.UsageError(str(exc)) from exc
    except (FolderUnusable, NewerDatabase, StoreError) as exc:
        raise click.ClickException(str(exc)) from exc
    except (ChildFailed, UnusableTemplate) as exc:
        raise click.ClickException(f"{exc}; everything else was stopped") from exc


def _listen(host: str, port: int, *, patient: bool) -> socket.socket:
    """Returns a listening socket, bound before anything starts, so that a taken port is reported at once (by a
    ClickException); if `patient`, after some seconds: processes of a server that was killed need a moment to end.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    until = time.monotonic() + (PATIENCE_SECONDS if patient else 0)
    while True:
        try:
            return socket.create_server((host, port), family=family, backlog=1024)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE and time.monotonic() < until:
                time.sleep(0.05)  # polls: nobody tells when a port is free
                continue
            reason = exc.strerror or str(exc)
            raise click.ClickException(
                f"cannot listen on {host}:{port}: {reason}. Choose another one with --port."
            ) from exc


def _stop_on_signal() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _write(path: Path, state: dict[str, Any]) -> None:
    """Writes the file atomically, so that a process that waits for it never reads half of it."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(state, indent=2) + "\n")
    scratch.replace(path)


def main(arguments: list[str] | None = None) -> None:
    """Runs the command; with `arguments` in place of the command line's."""
    command(prog_name="headrace dev", args=sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    main()
