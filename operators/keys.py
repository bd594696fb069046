"""The command group `headrace key`: the access keys in a deployment's secret."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import click

from cli.errors import BadInput, CliError
from cli.groups import CommandGroup
from cli.options import confirm, json_option, print_json
from cli.tables import Column, counted, print_table
from cli.terminal import say
from cli.units import format_duration
from headrace.access_keys import ALL, AccessError, AccessKey, Scope, format_keys, make_entry, parse_keys, scope_names
from headrace.settings import Settings
from operators.stores import aws_client, secret_options, store_errors

KEY_BYTES = 32
TRIES = 5
CURRENT = "AWSCURRENT"
NEXT = "HEADRACE_NEXT"
"""The staging label of a version that is about to become the current one."""

SCOPES = {**{name: Scope[name.upper()] for name in scope_names(ALL)}, "all": ALL}
EXIT_CODES = """\b
Exit codes: 0 done, 1 refused, 2 wrong usage, 3 AWS does not answer."""
Change = Callable[[list[AccessKey]], list[AccessKey]]


@click.group(cls=CommandGroup, epilog="`headrace key COMMAND --help` has examples; docs/operations.md explains it.")
def command() -> None:
    """Access keys of a deployment: what clients send, and what each allows.

    They are in a secret of AWS Secrets Manager, which these commands read and change; they ask no server. Routing keys
    of records are something else: `headrace keys`.
    """


@command.command(
    "create",
    epilog=f"""\b
Examples:
  headrace key create --scope all --secret ADMIN_KEY_SECRET_ARN
  headrace key create --scope read --scope write --prefix demo/
  headrace key create --scope all --state-file dev.json
  headrace key create --scope read | headrace context add prod \\
        --url https://abc.on.aws --key-file -

{EXIT_CODES}""",
)
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(list(SCOPES)),
    multiple=True,
    required=True,
    help="What the key allows; may be given more than once. One scope does not imply another.",
)
@click.option(
    "--prefix", "prefixes", multiple=True, help="Only names that begin with this; may be given more than once."
)
@json_option
@secret_options("api_keys_secret")
def create(
    scopes: tuple[str, ...], prefixes: tuple[str, ...], as_json: bool, secret: str, settings: Settings
) -> None:
    """Create an access key and print it. It can't be looked up later.

    The key is all that goes to standard output.
    """
    allowed = Scope(0)
    for scope in scopes:
        allowed |= SCOPES[scope]
    key = secrets.token_urlsafe(KEY_BYTES)
    try:
        entry = make_entry(key, allowed, prefixes)
    except AccessError as exc:
        raise BadInput(f"--prefix: {exc}") from exc
    change_keys(secret, "key create", lambda keys: [*keys, entry])
    if as_json:
        print_json({"key": key, **_facts(entry)})
        return
    say(f"created {entry.id}: {_described(entry)}; it works {_within(settings)}", err=True)
    say(key)


@command.command(
    "list",
    epilog=f"""\b
Examples:
  headrace key list --secret ADMIN_KEY_SECRET_ARN
  headrace key list --state-file dev.json --json

{EXIT_CODES}""",
)
@json_option
@secret_options("api_keys_secret")
def list_(as_json: bool, secret: str, settings: Settings) -> None:  # noqa: ARG001
    """List the access keys: ids, scopes and prefixes, never the keys themselves.

    An id is the beginning of the key's SHA-256 digest; logs name keys by it.
    """
    with store_errors("key list"):
        keys = read_keys(aws_client("secretsmanager"), secret)[0]
    if as_json:
        print_json([_facts(key) for key in keys])
    elif keys:
        columns = [Column("id"), Column("scopes"), Column("names")]
        print_table(columns, ([key.id, ", ".join(scope_names(key.scopes)), _names(key)] for key in keys))
    else:
        say("no keys: nobody is served; `headrace key create` makes one", err=True)


@command.command(
    "revoke",
    epilog=f"""\b
Examples:
  headrace key revoke 3c469e9d --secret ADMIN_KEY_SECRET_ARN
  headrace key revoke 3c469e9d f0e4c2f7 --yes --state-file dev.json

{EXIT_CODES}""",
)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
@secret_options("api_keys_secret")
def revoke(ids: tuple[str, ...], yes: bool, as_json: bool, secret: str, settings: Settings) -> None:
    """Revoke the access keys with these IDs, as `headrace key list` shows them.

    The last key can't be revoked: a deployment without keys serves nobody. Create another one first.
    """
    what = f"revoke {', '.join(dict.fromkeys(ids))}"
    confirm(what, f"{what}? requests with {'it' if len(ids) == 1 else 'them'} will be refused", yes=yes)
    change_keys(secret, "key revoke", lambda keys: _without(keys, ids))
    if as_json:
        print_json({"revoked": list(dict.fromkeys(ids))})
    else:
        say(f"revoked {counted(len(set(ids)), 'key')}; requests are refused {_within(settings)}")


def _without(keys: Sequence[AccessKey], ids: Sequence[str]) -> list[AccessKey]:
    known = [key.id for key in keys]
    for key_id in ids:
        if known.count(key_id) != 1:
            said = "no key has this id" if key_id not in known else "two keys have this id"
            raise CliError(f"{said}: {key_id}", "`headrace key list` shows the ids")
    kept = [key for key in keys if key.id not in ids]
    if not kept:
        raise CliError("the last key can't be revoked", "`headrace key create` another one first")
    return kept


def read_keys(store: Any, secret: str) -> tuple[list[AccessKey], str]:
    """Returns the keys in a secret, and the id of the secret's current version.

    Raises:
        CliError: the secret is not a list of keys.
    """
    answer = store.get_secret_value(SecretId=secret)
    try:
        return parse_keys(answer["SecretString"]), answer["VersionId"]
    except AccessError as exc:
        raise CliError(
            f"the secret is malformed: {exc}", "is it that of the access keys? docs/operations.md has the format"
        ) from exc


def change_keys(secret: str, what: str, change: Change) -> None:
    """Replaces the keys in a secret by what `change` makes of them. Two operators don't lose each other's changes: the
    new version becomes the current one only if the version that was read still is; else `change` is asked again.

    Raises:
        CliError: the change, or AWS, refuses; or others changed the secret all the time.
        Unreachable: AWS does not answer.
    """
    with store_errors(what):
        store = aws_client("secretsmanager")
        for _ in range(TRIES):
            keys, version = read_keys(store, secret)
            text = format_keys(change(keys))
            parse_keys(text)
            new = store.put_secret_value(SecretId=secret, SecretString=text, VersionStages=[NEXT])["VersionId"]
            if _make_current(store, secret, new, before=version):
                return
    raise CliError(f"{what}: the secret was changed by others meanwhile", "run the command again")


def _make_current(store: Any, secret: str, version: str, *, before: str) -> bool:
    """Makes a version of a secret the current one. Returns False if another one than `before` is current."""
    from botocore.exceptions import ClientError

    try:
        store.update_secret_version_stage(
            SecretId=secret, VersionStage=CURRENT, RemoveFromVersionId=before, MoveToVersionId=version
        )
    except ClientError as exc:
        if exc.response["Error"]["Code"] != "InvalidParameterException":
            raise
        # It is current if the answer to the first of two tries of the SDK was lost.
        return bool(store.get_secret_value(SecretId=secret)["VersionId"] == version)
    return True


def _facts(key: AccessKey) -> dict[str, Any]:
    return {"id": key.id, "scopes": scope_names(key.scopes), "prefixes": list(key.prefixes)}


def _described(key: AccessKey) -> str:
    return f"{', '.join(scope_names(key.scopes))}; {_names(key)}"


def _names(key: AccessKey) -> str:
    return " ".join(f"{prefix}*" for prefix in key.prefixes) or "any name"


def _within(settings: Settings) -> str:
    return f"within {format_duration(settings.keys_age_ms)}"
