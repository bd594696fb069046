"""Receivers of webhooks read the public keys, without a key of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.settings import Settings
from headrace.subscriptions.signing import SigningKeys
from tests.unit.api.asgi import JSON, Server

JWKS = "/v1/stream/__ds/jwks.json"
SECRET = "a" * 43


@pytest.mark.parametrize("keys", ["", "k:read:demo/"])
def test_the_public_keys_are_readable_without_a_key(keys: str) -> None:
    server = Server(keys, Settings(signing_keys=SECRET, metrics_interval_ms=0))
    answer = server("GET", JWKS)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/jwk-set+json"
    assert answer.headers["cache-control"] == "public, max-age=300"
    assert answer.json == SigningKeys.parse(SECRET).jwks(0)
    assert SECRET.encode() not in answer.body


def test_a_key_that_is_not_used_yet_is_public() -> None:
    server = Server(settings=Settings(signing_keys=f"{SECRET},{'b' * 43}@99999999999", metrics_interval_ms=0))
    assert len(server("GET", JWKS).json["keys"]) == 2


def test_without_signing_keys_there_is_nothing_to_show() -> None:
    assert Server()("GET", JWKS).status == 503


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_nobody_writes_there(method: str) -> None:
    assert Server(settings=Settings(signing_keys=SECRET))(method, JWKS, JSON, b"{}").status == 405


def test_who_signs_nothing_does_not_load_what_signs() -> None:
    program = f"""
import sys
from tests.unit.api.asgi import JSON, Server
server = Server()
assert server("PUT", "/v1/stream/s", JSON).status == 201
assert server("POST", "/v1/stream/s", JSON, b'{{}}').status == 204
assert not [name for name in sys.modules if name.partition(".")[0] in ("nacl", "cffi")]
from headrace.settings import Settings
assert Server(settings=Settings(signing_keys="{SECRET}"))("GET", "{JWKS}").status == 200
assert "nacl.signing" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
