"""Saved servers and keys: what is used, what is shown, and to whom a key is sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.contexts import contexts_path
from cli.main import main
from tests.cli.conftest import Shell
from tests.cli.fake_server import FakeServer

SECRET = "s3cret-of-prod"
PROD = "https://prod.test"


@pytest.fixture
def prod(headrace: Shell) -> Shell:
    """A shell with two saved servers, of which `prod` is in use."""
    for args in (("dev", "--url", "http://dev.test"), ("prod", "--url", PROD, "--key", SECRET, "--use")):
        assert headrace("context", "add", *args).exit_code == 0
    return headrace


def asked(server: FakeServer) -> tuple[str, str | None]:
    """Returns the host and the key of the last request."""
    request = server.requests[-1]
    return request.url.host, request.headers.get("authorization", "").removeprefix("Bearer ") or None


@pytest.mark.parametrize(
    ("args", "environment", "expected"),
    [
        (["list"], {}, ("prod.test", SECRET)),
        (["list"], {"HEADRACE_API_KEY": "env"}, ("prod.test", "env")),
        (["list"], {"HEADRACE_URL": "http://env.test"}, ("env.test", None)),
        (["list"], {"HEADRACE_URL": PROD}, ("prod.test", SECRET)),
        (["list"], {"HEADRACE_CONTEXT": "dev"}, ("dev.test", None)),
        (["list"], {"HEADRACE_CONTEXT": "dev", "HEADRACE_URL": "http://env.test"}, ("env.test", None)),
        (["list", "--context", "dev"], {"HEADRACE_URL": "http://env.test"}, ("dev.test", None)),
        (["list", "--context", "prod"], {"HEADRACE_API_KEY": "env"}, ("prod.test", SECRET)),
        (["--context", "dev", "list"], {"HEADRACE_API_KEY": "env"}, ("dev.test", "env")),
        (["--context", "dev", "list", "--context", "prod"], {}, ("prod.test", SECRET)),
        (["list", "--url", "http://line.test"], {}, ("line.test", None)),
        (["--url", "http://line.test", "list", "--key", "k"], {"HEADRACE_API_KEY": "env"}, ("line.test", "k")),
        (["list", "--url", "http://line.test", "--context", "prod"], {}, ("line.test", None)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_an_option_comes_before_the_environment_before_a_context(
    prod: Shell,
    server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    environment: dict[str, str],
    expected: tuple[str, str | None],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert prod(*args).exit_code == 0
    assert asked(server) == expected


def test_a_saved_key_is_sent_to_no_other_server(prod: Shell, server: FakeServer) -> None:
    prod("info", "http://stranger.test/v1/stream/s")
    assert asked(server) == ("stranger.test", None)
    prod("info", f"{PROD}/v1/stream/s")
    assert asked(server) == ("prod.test", SECRET)


def test_context_says_what_is_used_and_why(prod: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prod("context").stdout.splitlines() == [
        "context  prod",
        f"server   {PROD}  (context prod)",
        "key      there is one  (context prod)",
    ]
    monkeypatch.setenv("HEADRACE_URL", "http://env.test")
    assert prod("context").stdout.splitlines() == [
        "context  prod",
        "server   http://env.test  (HEADRACE_URL)",
        "key      none",
    ]
    prod("context", "remove", "prod")
    assert prod("context").stdout.startswith("context  none\n")


def test_a_key_is_only_shown_to_who_asks_for_it(prod: Shell) -> None:
    said = [prod("context", *args) for args in ([], ["list"], ["list", "--json"], ["show", "prod"], ["use", "prod"])]
    said += [prod("context", "show", "prod", "--json"), prod("context", "remove", "dev")]
    assert [done.exit_code for done in said] == [0] * 7
    assert not any(SECRET in done.output for done in said)
    assert SECRET in prod("context", "show", "prod", "--show-key").stdout


def test_the_file_is_only_the_owners(prod: Shell) -> None:
    path = contexts_path()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    path.chmod(0o644)
    prod("context", "use", "dev")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["contexts.json"]


def test_contexts_are_listed_chosen_replaced_and_removed(prod: Shell, server: FakeServer) -> None:
    assert json.loads(prod("context", "list", "--json").stdout) == [
        {"name": "dev", "url": "http://dev.test", "has_key": False, "current": False},
        {"name": "prod", "url": PROD, "has_key": True, "current": True},
    ]
    refused = prod("context", "add", "prod", "--url", "http://other.test")
    assert (refused.exit_code, "--replace" in refused.stderr) == (2, True)
    assert prod("context", "add", "prod", "--url", "http://other.test", "--replace").exit_code == 0
    prod("list")
    assert asked(server) == ("other.test", None)
    assert prod("context", "use", "--none").exit_code == 0
    prod("list")
    assert asked(server) == ("127.0.0.1", None)
    unknown = prod("list", "--context", "pord")
    assert (unknown.exit_code, "saved: dev, prod" in unknown.stderr) == (2, True)
    assert prod("context", "use").exit_code == prod("context", "remove", "x").exit_code == 2


@pytest.mark.parametrize(("text", "code"), [("k3y\n", 0), ("", 2), ("two words", 2)])
def test_a_key_may_come_from_a_file(
    headrace: Shell, server: FakeServer, tmp_path: Path, text: str, code: int
) -> None:
    (tmp_path / "key").write_text(text)
    args = ["context", "add", "a", "--url", "http://a.test", "--use", "--key-file"]
    assert headrace(*args, str(tmp_path / "key")).exit_code == code
    if code == 0:
        headrace("list")
        assert asked(server) == ("a.test", "k3y")
    assert CliRunner().invoke(main, [*args, "-", "--replace"], input=text).exit_code == code


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"contexts": {"a": 1}}', '{"contexts": {"a": {}}}'])
def test_a_damaged_file_is_named(headrace: Shell, text: str) -> None:
    contexts_path().parent.mkdir(parents=True)
    contexts_path().write_text(text)
    refused = headrace("list")
    assert refused.exit_code == 2 and str(contexts_path()) in refused.stderr
