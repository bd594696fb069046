"""An operator creates, lists and revokes access keys: in Secrets Manager, and in the folder of a single machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from cli.main import main
from headrace.access_keys import AccessKey, format_keys
from local.machine import environment_of
from local.machine.services import Secrets
from operators import keys as commands
from tests.conformance.contract.client import eventually
from tests.support.command_line import headrace as run_with_json
from tests.support.emulated_cloud import dev_server, emulated_cloud


def headrace(*args: str) -> Result:
    done = CliRunner().invoke(main, ["key", *args])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture(params=["aws", "machine"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A client of Secrets Manager with the secret `keys`, which the environment names: it has one key, `generated`."""
    monkeypatch.setenv("HEADRACE_API_KEYS_SECRET", "keys")
    if request.param == "machine":
        for name, value in environment_of(tmp_path).items():
            monkeypatch.setenv(name, value)
        secrets = Secrets(tmp_path)
        secrets.put_secret_value(SecretId="keys", SecretString="generated")
        yield secrets
        return
    with emulated_cloud() as cloud:
        for name, value in cloud.environment.items():
            monkeypatch.setenv(name, value)
        client = cloud.client("secretsmanager")
        client.create_secret(Name="keys", SecretString="generated")
        yield client


def text(store: Any) -> str:
    return str(store.get_secret_value(SecretId="keys")["SecretString"])


def test_a_key_is_created_listed_and_revoked(store: Any) -> None:
    created = headrace("create", "--scope", "read", "--scope", "write", "--prefix", "demo/", "--prefix", "test:")
    key = created.stdout.strip()
    assert created.exit_code == 0 and text(store) == f"generated,{key}:read+write:demo/|test:"
    assert key not in created.stderr and "demo/*" in created.stderr
    listed = headrace("list")
    assert key not in listed.output and "generated" not in listed.output
    first, second = json.loads(headrace("list", "--json").stdout)
    assert (first["scopes"], first["prefixes"]) == (["read", "write", "delete", "admin"], [])
    assert (second["scopes"], second["prefixes"]) == (["read", "write"], ["demo/", "test:"])
    assert second["id"] in listed.stdout and second["id"] in created.stderr
    assert headrace("revoke", first["id"]).exit_code == 2, "nobody was there to confirm it"
    assert headrace("revoke", first["id"], "--yes").exit_code == 0
    assert text(store) == f"{key}:read+write:demo/|test:"


def test_the_last_key_and_unknown_keys_are_not_revoked(store: Any) -> None:
    (only,) = json.loads(headrace("list", "--json").stdout)
    last = headrace("revoke", only["id"], "--yes")
    assert (last.exit_code, "last key" in last.stderr) == (1, True)
    unknown = headrace("revoke", "00000000", only["id"], "--yes")
    assert (unknown.exit_code, "no key has this id: 00000000" in unknown.stderr) == (1, True)
    assert text(store) == "generated"


def test_two_operators_do_not_lose_each_others_change(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    others = iter(["generated,other:read", "generated,other:read,third"])

    def change_meanwhile(keys: list[AccessKey]) -> str:
        if (changed := next(others, None)) is not None:
            store.put_secret_value(SecretId="keys", SecretString=changed)
        return format_keys(keys)

    monkeypatch.setattr(commands, "format_keys", change_meanwhile)
    created = headrace("create", "--scope", "all", "--json")
    assert text(store) == f"generated,other:read,third,{json.loads(created.stdout)['key']}"

    numbers = count()

    def change_always(_keys: list[AccessKey]) -> str:
        store.put_secret_value(SecretId="keys", SecretString=f"k{next(numbers)}")
        return "never"

    monkeypatch.setattr(commands, "format_keys", change_always)
    refused = headrace("create", "--scope", "all")
    assert refused.exit_code == 1 and "changed by others" in refused.stderr
    assert "never" not in text(store)


def test_what_the_list_can_not_express_is_refused(store: Any) -> None:
    for prefix in ("", "a,b", "a|b", "a "):
        refused = headrace("create", "--scope", "read", "--prefix", prefix)
        assert (refused.exit_code, refused.stdout) == (2, "")
    assert headrace("create").exit_code == 2
    store.put_secret_value(SecretId="keys", SecretString="s3cret:everything")
    for args in (["create", "--scope", "all"], ["list"], ["revoke", "00000000", "--yes"]):
        refused = headrace(*args)
        assert refused.exit_code == 1 and "malformed" in refused.stderr and "s3cret" not in refused.output
    assert text(store) == "s3cret:everything"


def test_a_secret_must_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEADRACE_API_KEYS_SECRET", raising=False)
    assert "--secret" in headrace("list").stderr
    (tmp_path / "dev.json").write_text('{"environment": {}}')
    open_server = headrace("list", "--state-file", str(tmp_path / "dev.json"))
    assert (open_server.exit_code, "--require-key" in open_server.stderr) == (2, True)


def test_a_server_of_this_machine_asks_for_the_keys_that_the_command_makes() -> None:
    with dev_server("--require-key", on_data=True) as server:
        state = str(server.state_file)

        def status(key: str) -> int:
            return httpx.get(f"{server.url}/v1/streams", headers={"authorization": f"Bearer {key}"}).status_code

        assert httpx.get(f"{server.url}/v1/streams").status_code == 401
        made = run_with_json("key", "create", "--scope", "read", "--state-file", state)[1]
        eventually(lambda: status(made["key"]), lambda found: found == 200)
        assert (
            httpx.put(f"{server.url}/v1/stream/s", headers={"authorization": f"Bearer {made['key']}"}).status_code
            == 403
        )
        assert run_with_json("key", "revoke", made["id"], "--yes", "--state-file", state)[0] == 0
        eventually(lambda: status(made["key"]), lambda found: found == 401)
