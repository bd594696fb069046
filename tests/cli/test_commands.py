from __future__ import annotations

import json
import subprocess
import sys

import httpx
import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_server import FakeServer, Stream, status

ODD_NAMES = ["a/b", "a%2Fb", "100%", "früh ☀", "..", ".", "a?b#c", "a b+c", "/x/", "a\\b"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_is_one_segment(headrace: Shell, server: FakeServer, name: str) -> None:
    assert headrace("create", name).exit_code == 0
    assert list(server.streams) == [name]
    assert json.loads(headrace("info", name, "--json").stdout)["name"] == name


def test_a_stream_may_be_named_by_its_url(headrace: Shell, server: FakeServer) -> None:
    headrace("create", "http://other.test:99/v1/stream/a%2Fb")
    assert list(server.streams) == ["a/b"]
    assert server.requests[0].url.host == "other.test"


def test_create_says_what_it_was_told(headrace: Shell, server: FakeServer) -> None:
    result = headrace("create", "s", "--ttl", "24h", "--content-type", "text/plain", "--closed", "--json")
    assert json.loads(result.stdout)["created"] is True
    sent = server.streams["s"].created_with
    assert (sent["stream-ttl"], sent["content-type"], sent["stream-closed"]) == ("24h", "text/plain", "true")
    assert json.loads(headrace("create", "s", "--json").stdout)["created"] is False
    assert headrace("create", "s", "--ttl", "1", "--expires-at", "2030-01-01T00:00:00Z").exit_code == 2


def test_create_asks_for_a_retention(headrace: Shell, server: FakeServer) -> None:
    headrace("create", "s", "--retention-age", "168h", "--retention-bytes", "1000")
    sent = server.streams["s"].created_with
    assert (sent["stream-retention-age"], sent["stream-retention-bytes"]) == ("168h", "1000")
    assert json.loads(headrace("info", "s", "--json").stdout)["earliest_offset"] is None


def test_a_fork_names_its_source_by_path(headrace: Shell, server: FakeServer) -> None:
    headrace("create", "copy", "--from", "a/b", "--at", "7", "--sub", "2")
    sent = server.streams["copy"].created_with
    assert sent["stream-forked-from"] == "/v1/stream/a%2Fb"
    assert (sent["stream-fork-offset"], sent["stream-fork-sub-offset"]) == ("7", "2")
    assert "content-type" not in sent
    assert headrace("create", "copy2", "--at", "7").exit_code == 2


def test_list_pages_until_the_end(headrace: Shell, server: FakeServer) -> None:
    for number in range(2500):
        server.streams[f"s{number:04d}"] = Stream("application/json")
    assert len(json.loads(headrace("list", "--all", "--json").stdout)) == 2500
    assert [r["name"] for r in json.loads(headrace("list", "--limit", "2", "--offset", "9", "--json").stdout)] == [
        "s0009",
        "s0010",
    ]
    assert "s0001" in headrace("list", "--limit", "2").stdout


def test_delete_asks(headrace: Shell, server: FakeServer) -> None:
    server.streams["s"] = Stream("application/json")
    assert headrace("delete", "s").exit_code == 2
    assert headrace("delete", "s", "--yes").exit_code == 0
    assert headrace("delete", "s", "--yes").exit_code == 1


def test_the_key_travels_as_a_bearer_token(
    headrace: Shell, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_API_KEY", "secret")
    headrace("list")
    headrace("list", "--key", "other")
    headrace("--key", "third", "list")
    keys = [request.headers["authorization"] for request in server.requests]
    assert keys == ["Bearer secret", "Bearer other", "Bearer third"]


def test_the_server_may_be_named_before_or_after_the_command(headrace: Shell, server: FakeServer) -> None:
    headrace("--url", "http://a.test", "list")
    headrace("list", "--url", "http://b.test/")
    headrace("--url", "http://a.test", "list", "--url", "http://c.test")
    headrace("list")
    assert [request.url.host for request in server.requests] == ["a.test", "b.test", "c.test", "127.0.0.1"]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 405, 409, 410, 413])
def test_a_refusal_is_one_message_and_exit_code_1(headrace: Shell, server: FakeServer, code: int) -> None:
    server.streams["s"] = Stream("application/json")
    server.faults = [None, status(code)]
    result = headrace("append", "s", "--data", "1")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: append to s") and f"({code})" in result.stderr
    assert code == 400 or "hint: " in result.stderr


def test_the_servers_own_words_are_shown(headrace: Shell) -> None:
    assert "no such stream" in headrace("read", "s").stderr or "404" in headrace("read", "s").stderr


def test_a_server_that_is_not_there_is_exit_code_3_at_once(headrace: Shell, server: FakeServer) -> None:
    def refuse(request: httpx.Request, apply: object) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    server.faults = [refuse]
    result = headrace("info", "s")
    assert result.exit_code == 3 and "headrace dev" in result.stderr
    assert headrace.slept == []


def test_a_server_that_goes_away_is_waited_for(headrace: Shell, server: FakeServer) -> None:
    server.streams["s"] = Stream("application/json")

    def refuse(request: httpx.Request, apply: object) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    server.faults = [None, refuse, refuse]
    assert headrace("append", "s", "--data", "1").exit_code == 0
    server.faults = [None, *[refuse] * 100]
    assert headrace("append", "s", "--data", "1").exit_code == 3


def test_wrong_usage_is_exit_code_2(headrace: Shell) -> None:
    assert headrace("nonsense").exit_code == 2
    assert headrace("append").exit_code == 2
    assert headrace("info", "s", "--url", "ftp://x").exit_code == 2


def test_help_imports_no_http_client() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from cli.main import main; "
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0; "
        "print([m for m in ('httpx', 'rich', 'msgspec.json', 'boto3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "httpx" not in done.stdout and "boto3" not in done.stdout and "rich" not in done.stdout


@pytest.mark.parametrize("name", ["create", "append", "read", "tail", "info", "list", "delete"])
def test_every_command_teaches_by_examples(headrace: Shell, name: str) -> None:
    text = headrace(name, "--help").stdout
    assert f"headrace {name}" in text and "Exit codes" in text
