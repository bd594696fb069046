"""The command `headrace rotate-signing-key`: adds a key that signs webhooks, and removes those that are over."""

from __future__ import annotations

import secrets
import time

import click

from cli.errors import CliError
from cli.terminal import say
from headrace import instants
from headrace.settings import Settings
from headrace.subscriptions.signing import BadSigningKeys, RotationUnderWay, SigningKeys
from operators.stores import aws_client, secret_options, store_errors

EPILOG = """\b
What happens: a new key is written beside those that are still needed. It is public within a minute, signs five minutes
later, and the key before it stays public for another five minutes. So no receiver meets a signature that it can't verify,
and there is no second step.

\b
Examples:
  headrace rotate-signing-key --secret SIGNING_KEY_SECRET_ARN     # an output of the data's stack
  headrace rotate-signing-key --state-file dev.json               # of `headrace dev --state-file dev.json`

\b
Exit codes: 0 rotated, 1 the newest key was not used yet, 2 wrong usage, 3 AWS does not answer."""


@click.command(epilog=EPILOG)
@secret_options("signing_keys_secret")
def rotate(secret: str, settings: Settings) -> None:
    """Add a key that signs webhooks. It takes over by itself, minutes later.

    The command talks to AWS itself, not to a server, and shows no secret.
    """
    now_s = int(time.time())
    with store_errors("rotate-signing-key"):
        store = aws_client("secretsmanager")
        text = store.get_secret_value(SecretId=secret)["SecretString"]
        try:
            keys = SigningKeys.parse(text).rotated(
                secrets.token_urlsafe(32), now_s, cached_s=-(-settings.keys_age_ms // 1000)
            )
        except RotationUnderWay as exc:
            raise CliError(
                f"the newest key is not used before {_shown(exc.first_use_s)}", "run the command again after that"
            ) from exc
        except BadSigningKeys as exc:
            raise CliError(
                f"the secret is malformed: {exc}", "docs/operations.md, Signing keys, has the way"
            ) from exc
        store.put_secret_value(SecretId=secret, SecretString=keys.format())
    newest = keys.keys[-1]
    say(f"new key {newest.kid}, signs from {_shown(newest.first_use_s)}")
    say(f"until then {keys.current(now_s).kid} does, and stays public for a while")


def _shown(seconds: int) -> str:
    return instants.render(seconds * 1000)
