"""Opens the tables and the bucket of a deployment, for commands that call AWS directly and not a server."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from cli.errors import BadInput, CliError, Unreachable
from cli.output import steps_bar
from cli.terminal import print_document
from headrace.errors import NewerFormat, StoreError
from headrace.machine import machine_of
from headrace.settings import Settings, SettingsError, child_environment

if TYPE_CHECKING:  # half a second that `--help` need not wait for
    from headrace.clock import Threads
    from headrace.log.stores import Stores

_TIMEOUT_S = 20.0  # no request waits for this
_THREADS = 32
_NEEDED = (
    "wal_table",
    "catalog_table",
    "watermarks_table",
    "producers_table",
    "follows_table",
    "sessions_table",
    "features_table",
    "bucket",
)

EXIT_CODES = "\b\nExit codes: 0 clean, 1 findings or a log refused, 2 wrong usage, 3 AWS does not answer."


def state_file_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --state-file to a command, and passes the opened stores as the argument `stores`."""

    @click.option(
        "--state-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="What `headrace dev --state-file` wrote; else HEADRACE_*_TABLE, HEADRACE_BUCKET and AWS_* are read.",
    )
    @wraps(command)
    def with_stores(*args: Any, state_file: Path | None, **kwargs: Any) -> Any:
        return command(*args, stores=open_stores(state_file), **kwargs)

    return with_stores


def secret_options(setting: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds --secret and --state-file to a command, and passes the secret's name as the argument `secret`, and the
    `settings` of the deployment.

    Args:
        setting: the name of the setting that has the secret's name, in lower case and without prefix.
    """
    variable = f"HEADRACE_{setting.upper()}"

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--secret", help=f"ARN or name of the secret; else {variable}.")
        @click.option(
            "--state-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="What `headrace dev --state-file` wrote; else AWS_* are read.",
        )
        @wraps(command)
        def with_secret(*args: Any, secret: str | None, state_file: Path | None, **kwargs: Any) -> Any:
            settings = read_settings(state_file)
            name = secret or getattr(settings, setting)
            if not name and state_file is not None:
                raise BadInput("this server asks for no keys", "start it with `headrace dev --require-key`")
            if not name:
                raise BadInput(f"which secret holds the keys is unknown: {variable} is not set", "pass --secret")
            return command(*args, secret=name, settings=settings, **kwargs)

        return with_secret

    return decorate


def open_stores(state_file: Path | None) -> Stores:
    """Opens the stores that a state file, or else the environment of this process, names. A state file's variables
    replace those of this process. Raises BadInput if a name is missing or the file is invalid.
    """
    settings = read_settings(state_file)
    missing = [f"HEADRACE_{name.upper()}" for name in _NEEDED if not getattr(settings, name)]
    if missing:
        hint = "set them as the functions have them, or pass --state-file"
        raise BadInput(f"where the data are is unknown: {', '.join(missing)} not set", hint)
    from headrace.aws import aws_stores, region_of

    return aws_stores(settings, region_of(os.environ), dynamodb_timeout_s=_TIMEOUT_S, s3_read_timeout_s=_TIMEOUT_S)


def aws_client(service: str, **given: Any) -> Any:
    """Returns a boto3 client of a service; or that of the machine that the environment names."""
    machine = machine_of()
    found = machine.client(service) if machine is not None else None
    if found is not None:
        return found
    import boto3  # half a second that `--help` need not wait for

    return boto3.client(service, **given)


def threads() -> Threads:
    """Returns the threads in which a command reads many logs at once."""
    from headrace.clock import Threads

    return Threads(_THREADS, "logs")


def logs_of(stores: Stores, name: str, hint: str) -> list[str]:
    """Returns the ids of all logs of a name, on every surface.

    Raises:
        CliError: there is nothing with this name; `hint` says what to do.
    """
    rows = [row for surface in stores.surfaces if (row := stores.catalog.get(surface, name)) is not None]
    if not rows:
        raise CliError(f"no such name: {name}", hint)
    return [log.log_id for row in rows for log in row.logs]


def read_settings(state_file: Path | None) -> Settings:
    """Returns the settings in a state file, which replaces the variables of this process, or else in these. Raises BadInput
    if one is invalid.
    """
    if state_file is not None:
        take_environment(state_file)
    try:
        return Settings.from_environment(os.environ)
    except SettingsError as exc:
        raise BadInput(str(exc)) from exc


def take_environment(state_file: Path) -> None:
    """Sets the variables of the emulator's state file in this process's environment and removes a person's own AWS
    identity, so that it is not used by accident. Raises BadInput if it is no state file.
    """
    try:
        given = json.loads(state_file.read_bytes())["environment"]
        environment = child_environment(os.environ, {str(name): str(value) for name, value in given.items()})
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise BadInput(f"not a state file: {state_file}", "`headrace dev --state-file` writes one") from exc
    os.environ.clear()
    os.environ.update(environment)


@contextmanager
def store_errors(what: str) -> Iterator[None]:
    """Turns errors of AWS inside the block into messages for people: raises Unreachable if a retry may help, else
    CliError.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except StoreError as exc:
        raise Unreachable(f"{what}: {exc}", "run the command again: it continues what is unfinished") from exc
    except NewerFormat as exc:
        raise CliError(
            f"{what}: {exc}", "install the release of the deployment: pip install -U 'headrace[operators]'"
        ) from exc
    except (ClientError, BotoCoreError) as exc:
        raise CliError(f"{what}: {exc}", "check the names, the region and your permissions") from exc


def print_json(value: object) -> None:
    """Prints a value as one JSON document. Unlike the client's function, it also takes msgspec values."""
    print_document(msgspec.json.encode(value))


class Steps:
    """A display of progress on standard error if that is a terminal: the current step, and how much of it is done."""

    def __init__(self) -> None:
        self._progress = steps_bar()
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> Steps:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Shows the progress of a step; implements `headrace.recovery.report.Progress`."""
        self._progress.update(self._task, description=what, completed=done, total=total or None)
