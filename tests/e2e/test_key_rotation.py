"""An operator rotates the key of a deployment: in Secrets Manager, and nowhere else."""

from __future__ import annotations

import time

import pytest

from functions.api import context
from tests.support.emulated_cloud import emulated_cloud
from tests.unit.api.asgi import Server


def test_keys_are_those_of_the_secret_a_moment_after_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated_cloud() as cloud:
        secrets = cloud.client("secretsmanager")
        arn = secrets.create_secret(Name="keys", SecretString="generated")["ARN"]
        settings = {
            "HEADRACE_API_KEYS_SECRET": arn,
            "HEADRACE_KEYS_AGE_MS": "100",
            "HEADRACE_METRICS_INTERVAL_MS": "0",
        }
        for name, value in {**cloud.environment, **settings}.items():
            monkeypatch.setenv(name, value)
        server = Server(parts=context.open_context())

        def statuses(*keys: str) -> list[int]:
            return [server("GET", "/v1/streams", {"authorization": f"Bearer {key}"}).status for key in keys]

        assert statuses("generated", "next", "reader") == [200, 401, 401]
        secrets.put_secret_value(SecretId=arn, SecretString="generated,next,reader:write")
        time.sleep(0.2)  # longer than HEADRACE_KEYS_AGE_MS: the secret is read again
        assert statuses("generated", "next", "reader") == [200, 200, 403]
        secrets.put_secret_value(SecretId=arn, SecretString="next")
        time.sleep(0.2)  # the same
        assert statuses("generated", "next", "reader") == [401, 200, 401]
