"""The command `headrace doctor`: asks a server over HTTP and a deployment's AWS resources, and prints what the answers
mean.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import click
import httpx

from cli.errors import BadInput, CliError
from cli.options import Connection, base_url, connection_options, json_option
from cli.terminal import say, say_beside
from headrace import VERSION
from headrace.settings import child_environment
from operators.doctor import facts, rules
from operators.doctor.facts import Check, ServerFacts
from operators.doctor.resources import Resources, of_environment, of_stack, of_state_file
from operators.stores import aws_client, print_json

_DYNAMODB_TIMEOUT_S = 10.0

HELP = """Check the health of a deployment, or of `headrace dev`, and suggest fixes.

\b
It asks the server over HTTP:
  server, version, lock, key     it answers, how fast, its release, which keys it accepts
With --stack or --state-file, or HEADRACE_*_TABLE and the like set, it also asks AWS:
  tables, bucket, queues         they exist, with their protections; dead letters
  sealing                        how old the oldest unsealed entry is, of up to 200 streams
  relay, routers                 visits that are overdue; routers that are late, or wait for room
  subscriptions, job queues      webhooks that fail, wakes that nobody claims; jobs that wait for long or were given up
  folding, registrations         events that wait to get into rows, tables that stopped; registrations that did not end
  feature jobs                   back-fills that do not end, training sets and snapshots that failed
  indexing, job runs             how long logs wait, which ones failed and why, how the last job runs ended
  alarms                         which ones are in alarm

\b
It reads and changes nothing. On AWS it needs the permissions to describe stacks, tables, buckets, queues, alarms and job
runs, and to read the tables. To check that stored data are intact: `headrace verify`."""

EPILOG = """\b
Examples:
  headrace doctor                                        # a server on this machine
  headrace doctor --state-file dev.json                  # of `headrace dev --state-file dev.json`
  headrace doctor --stack headrace-prod --key "$KEY"     # URL and names from the stack
  headrace doctor --json | jq '.checks[] | select(.level != "ok")'

\b
Exit codes: 0 nothing found, 1 something to watch, 2 something to do, or wrong usage."""


@click.command(help=HELP, epilog=EPILOG)
@click.option("--stack", help="A CloudFormation stack, such as headrace-prod.")
@click.option(
    "--state-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What `headrace dev --state-file` wrote.",
)
@json_option
@connection_options
def command(connection: Connection, stack: str | None, state_file: Path | None, as_json: bool) -> None:
    """Checks a deployment and prints what is wrong; its help text is `HELP`."""
    resources = _resources(stack, state_file)
    url = base_url(_url(connection, resources))
    checks = list(rules.server(ask_server(url, connection.choice.key_for(url)), url, VERSION))
    if resources is None:
        checks.append(
            Check("AWS", "skipped", "not asked: neither --stack nor --state-file, and HEADRACE_* is not set")
        )
    else:
        checks += _cloud_checks(resources)
    if as_json:
        print_json({"exit_code": facts.exit_code(checks), "url": url, "checks": checks})
    else:
        _print(checks)
    click.get_current_context().exit(facts.exit_code(checks))


def _resources(stack: str | None, state_file: Path | None) -> Resources | None:
    if stack is not None and state_file is not None:
        raise BadInput("--stack and --state-file name two deployments", "give one of them")
    if state_file is not None:
        return of_state_file(state_file)
    if stack is None:
        return of_environment(os.environ)
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return of_stack(boto3.client("cloudformation", region_name=_region(os.environ)), stack)
    except (ClientError, BotoCoreError) as exc:
        raise CliError(f"stack {stack}: {exc}", "check its name, the region and your permissions") from exc


def _url(connection: Connection, resources: Resources | None) -> str:
    """Returns the server URL that the command line or the environment named; instead of the default one, or that of the
    context in use, the deployment's URL, if that is known.
    """
    if connection.choice.is_chosen or resources is None or not resources.url:
        return connection.url
    return resources.url


def _cloud_checks(resources: Resources) -> list[Check]:
    """Gathers facts from AWS and returns the checks; for an emulator, with its environment variables."""
    from botocore.config import Config

    from headrace.aws import aws_stores, open_store
    from headrace.settings import Settings, SettingsError
    from headrace.tables.jobs import DynamoJobs
    from operators.doctor.cloud import CloudDoctor

    environment = {**os.environ, **resources.settings}
    if "AWS_ENDPOINT_URL" in resources.settings:  # a person's own AWS identity must not be used by accident
        environment = child_environment(os.environ, resources.settings)
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        settings = Settings.from_environment(environment)
        region = _region(environment)
        config = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 2})
        stores = aws_stores(
            settings, region, dynamodb_timeout_s=_DYNAMODB_TIMEOUT_S, s3_read_timeout_s=_DYNAMODB_TIMEOUT_S
        )
        jobs = (
            DynamoJobs(open_store(region, timeout_s=_DYNAMODB_TIMEOUT_S), settings.jobs_table)
            if settings.jobs_table
            else None
        )
        doctor = CloudDoctor(
            resources,
            settings,
            stores,
            jobs,
            lambda service: aws_client(service, region_name=region, config=config),
            is_emulated=is_local(environment.get("AWS_ENDPOINT_URL", "")),
        )
        return list(rules.cloud(doctor.look()))
    except SettingsError as exc:
        raise BadInput(str(exc)) from exc
    finally:
        os.environ.clear()
        os.environ.update(before)


def _region(environment: Mapping[str, str]) -> str:
    from headrace.aws import region_of

    return region_of(environment)


def _print(checks: list[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        say_beside(f"{check.level:8}{check.name:{width}}  ", check.found)
        if check.level in ("warn", "fail"):
            for line in (check.advice, check.docs):
                if line:
                    say_beside(f"{'':8}{'':{width}}  -> ", line)
    say(facts.summary(checks))


PINGS = 5
TIMEOUT_S = 15.0
VERSION_HEADER = "headrace-version"
_LOCAL = ("127.0.0.1", "::1", "localhost")


def is_local(url: str) -> bool:
    """Returns whether the URL's host is `localhost`, `127.0.0.1` or `::1`, and so on this machine."""
    return urlsplit(url).hostname in _LOCAL


def ask_server(
    url: str,
    key: str | None,
    *,
    transport: httpx.BaseTransport | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> ServerFacts:
    """Gathers facts about the server at `url`. Each request is made once, without retries; an error is a fact, too."""
    local = is_local(url)
    try:
        with httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=not local, transport=transport) as http:
            latencies, version = [], ""
            for _ in range(PINGS):
                began = monotonic()
                answer = http.get("/health")
                latencies.append((monotonic() - began) * 1000)
                if answer.status_code != 200:
                    return ServerFacts(error=f"GET /health: status {answer.status_code}", is_local=local)
                version = answer.headers.get(VERSION_HEADER, "")
            bearer = {"authorization": f"Bearer {key.strip()}"} if key else None
            return ServerFacts(
                latencies_ms=tuple(latencies),
                version=version,
                status_without_key=_status(http, "/v1/streams?limit=1"),
                status_with_key=_status(http, "/v1/streams?limit=1", bearer) if bearer else None,
                status_as_admin=_status(http, "/v1/server/_details", bearer) if bearer else None,
                is_local=local,
            )
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeEncodeError) as exc:
        return ServerFacts(error=str(exc) or type(exc).__name__, is_local=local)


def _status(http: httpx.Client, path: str, headers: Mapping[str, str] | None = None) -> int:
    return http.get(path, headers=headers).status_code
