"""An operator rotates the key that signs webhooks, by one command: no receiver ever meets an unknown key."""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner, Result

from cli.main import main
from functions.api import context
from headrace.subscriptions.signing import JWKS_AGE_S, REPLAY_S, SigningKeys
from tests.support.emulated_cloud import emulated_cloud
from tests.unit.api.asgi import Server

JWKS = "/v1/stream/__ds/jwks.json"


def rotate(*options: str) -> Result:
    return CliRunner().invoke(main, ["rotate-signing-key", *options])


def test_a_new_key_is_public_at_once_and_signs_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated_cloud() as cloud:
        for name, value in {
            **cloud.environment,
            "HEADRACE_API_KEYS": "k",
            "HEADRACE_KEYS_AGE_MS": "100",
            "HEADRACE_METRICS_INTERVAL_MS": "0",
        }.items():
            monkeypatch.setenv(name, value)
        parts = context.open_context()
        server = Server(parts=parts)
        secret = cloud.environment["HEADRACE_SIGNING_KEYS_SECRET"]

        def kids() -> list[str]:
            return [key["kid"] for key in server("GET", JWKS).json["keys"]]

        (first,) = kids()
        before = int(time.time())
        done = rotate()
        assert done.exit_code == 0, done.output
        time.sleep(0.2)  # longer than HEADRACE_KEYS_AGE_MS: the secret is read again
        assert (kids()[0], len(kids())) == (first, 2)
        second = kids()[1]
        assert second in done.output
        keys = parts.signing.keys()
        first_use = keys.keys[1].first_use_s
        assert before + JWKS_AGE_S + 1 <= first_use <= time.time() + JWKS_AGE_S + 1
        assert [keys.current(now).kid for now in (before, first_use - 1, first_use)] == [first, first, second]
        assert len(keys.public(first_use + REPLAY_S - 1)) == 2
        assert [key.kid for key in keys.public(first_use + REPLAY_S)] == [second]

        again = rotate("--secret", secret)
        assert again.exit_code == 1
        assert "not used before" in again.output
        assert len(kids()) == 2

        # Long after that: the new key is in use, and the next one takes its turn.
        store = cloud.client("secretsmanager")
        old, new = keys.keys
        store.put_secret_value(SecretId=secret, SecretString=f"{old.secret},{new.secret}@{before - REPLAY_S - 1}")
        assert rotate().exit_code == 0
        text = store.get_secret_value(SecretId=secret)["SecretString"]
        assert SigningKeys.parse(text).keys[0].kid == second
        assert old.secret not in text


def test_what_is_no_list_of_keys_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated_cloud() as cloud:
        for name, value in cloud.environment.items():
            monkeypatch.setenv(name, value)
        store = cloud.client("secretsmanager")
        store.create_secret(Name="api-keys", SecretString="k:read,other")
        refused = rotate("--secret", "api-keys")
        assert refused.exit_code == 1
        assert "malformed" in refused.output
        assert store.get_secret_value(SecretId="api-keys")["SecretString"] == "k:read,other"
        assert rotate("--secret", "none").exit_code == 1
        monkeypatch.delenv("HEADRACE_SIGNING_KEYS_SECRET")
        assert rotate().exit_code == 2
