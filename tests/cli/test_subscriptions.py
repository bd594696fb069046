"""`headrace subscription …` against a fake server."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_server import FakeServer, Stream, status
from tests.cli.fake_subscriptions import FakeSubscriptions, refusal


def test_create_sends_what_is_given(headrace: Shell, subscriptions: FakeSubscriptions) -> None:
    made = headrace("subscription", "create", "me/x", "--stream", "a/b", "--stream", "c", "--wake-stream", "w",
                    "--lease", "5s", "--description", "d")  # fmt: skip
    assert made.stdout == "created me/x  http://127.0.0.1:8787/v1/stream/__ds/subscriptions/me%2Fx\n"
    assert subscriptions.subscriptions["me/x"].body == {
        "type": "pull-wake", "streams": ["a/b", "c"], "wake_stream": "w", "lease_ttl_ms": 5000, "description": "d",
    }  # fmt: skip
    url = "https://hooks.example.com/ds"
    hook = headrace("subscription", "create", "h", "--pattern", "a/*", "--webhook", url)
    assert subscriptions.subscriptions["h"].body == {"type": "webhook", "pattern": "a/*", "webhook": {"url": url}}
    assert hook.stdout.splitlines()[1] == "its calls are signed with ed25519, key ds_1 of http://there/jwks.json"
    again = headrace("subscription", "create", "h", "--pattern", "a/*", "--webhook", url)
    assert again.stdout.startswith("exists already: h ")
    other = headrace("subscription", "create", "h", "--pattern", "b/*", "--webhook", url)
    assert other.exit_code == 1 and "headrace subscription show" in other.stderr
    document = headrace("subscription", "create", "h", "--pattern", "a/*", "--webhook", url, "--json")
    assert json.loads(document.stdout)["id"] == "h"


@pytest.mark.parametrize(
    "args",
    [
        ("s", "--pattern", "a"),
        ("s", "--pattern", "a", "--webhook", "https://x", "--wake-stream", "w"),
        ("s", "--wake-stream", "w"),
        ("s", "--pattern", "a", "--wake-stream", "w", "--lease", "11m"),
        ("", "--pattern", "a", "--wake-stream", "w"),
    ],
)
def test_what_makes_no_sense_is_told_before(
    headrace: Shell, subscriptions: FakeSubscriptions, args: tuple[str, ...]
) -> None:
    result = headrace("subscription", "create", *args)
    assert result.exit_code == 2 and result.stderr.startswith("error: ") and not subscriptions.requests


def test_the_life_of_a_subscription(headrace: Shell, server: FakeServer, subscriptions: FakeSubscriptions) -> None:
    server.streams["a/b"] = Stream("application/json", records=[b"1"])
    headrace("subscription", "create", "s", "--pattern", "a/*", "--wake-stream", "w", "--lease", "5s")
    assert "no stream so far" in headrace("subscription", "show", "s").stdout
    assert headrace("subscription", "add-streams", "s", "a/b", "c").stdout == "s covers 2 more streams\n"
    shown = headrace("subscription", "show", "s").stdout
    assert "wake stream   w\n" in shown and "lease         5s\n" in shown and "a/b     explicit   1" in shown
    assert json.loads(headrace("subscription", "add-streams", "s", "d", "--json").stdout)["added"] == ["d"]
    assert headrace("subscription", "remove-stream", "s", "a/b").exit_code == 0
    assert set(subscriptions.subscriptions["s"].acked) == {"c", "d"}
    assert json.loads(headrace("subscription", "remove-stream", "s", "c", "--json").stdout)["removed"] == "c"
    assert json.loads(headrace("subscription", "show", "s", "--json").stdout)["id"] == "s"
    assert headrace("subscription", "delete", "s").exit_code == 2
    assert headrace("subscription", "delete", "s", "--yes").stdout == "deleted s\n"
    assert json.loads(headrace("subscription", "delete", "s", "--yes", "--json").stdout) == {
        "id": "s",
        "deleted": True,
    }
    missing = headrace("subscription", "show", "s")
    assert missing.exit_code == 1 and "headrace subscription create" in missing.stderr


def test_refusals_say_what_to_do(headrace: Shell, subscriptions: FakeSubscriptions) -> None:
    subscriptions.faults = [lambda *_: refusal(400, "WEBHOOK_URL_REJECTED"), status(403)]
    refused = headrace("subscription", "create", "s", "--pattern", "a", "--webhook", "http://10.0.0.1/")
    assert refused.exit_code == 1 and "https URL of a public address" in refused.stderr
    assert headrace("subscription", "show", "s").exit_code == 1
