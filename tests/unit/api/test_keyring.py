"""Keys that are read again: who comes in when, and that nothing which goes wrong opens or shuts the server."""

from __future__ import annotations

import threading

import pytest

from functions.access import Access, Keyring, check_exposure
from functions.api.context import assemble
from functions.refusals import Unauthorized
from headrace.memory import memory_stores
from headrace.settings import Settings
from tests.support.clocks import ManualClock
from tests.unit.api.asgi import Server

AGE_MS = 60_000


class Secret:
    """What Secrets Manager holds."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.error: Exception | None = None
        self.readings = 0

    def __call__(self) -> str:
        self.readings += 1
        if self.error is not None:
            raise self.error
        return self.text


def on_lambda(access: Access) -> None:
    check_exposure(access, host="", on_lambda=True, allow_insecure=False)


def serve(secret: Secret, clock: ManualClock) -> Server:
    keys = Keyring(secret, clock, age_ms=AGE_MS, check=on_lambda)
    keys.refresh()
    return Server(parts=assemble(memory_stores(Settings(metrics_interval_ms=0)), keys))


def status(server: Server, key: str) -> int:
    return server("GET", "/v1/streams", {"authorization": f"Bearer {key}"}).status


def test_a_rotation_needs_no_restart() -> None:
    secret, clock = Secret("old"), ManualClock()
    server = serve(secret, clock)
    assert [status(server, key) for key in ("old", "new")] == [200, 401]
    secret.text = "old,new"  # first the new one is added
    assert [status(server, key) for key in ("old", "new")] == [200, 401]
    clock.advance(AGE_MS / 1000)
    assert [status(server, key) for key in ("old", "new")] == [200, 200]
    secret.text = "new"  # and when clients have it, the old one goes
    clock.advance(AGE_MS / 1000)
    assert [status(server, key) for key in ("old", "new")] == [401, 200]


def test_the_secret_is_read_once_in_a_while_and_not_for_each_request() -> None:
    secret, clock = Secret("key"), ManualClock()
    server = serve(secret, clock)
    for _ in range(5):
        clock.advance(AGE_MS / 1000 / 10)
        assert status(server, "key") == 200
    assert secret.readings == 1
    clock.advance(AGE_MS / 1000)
    assert [status(server, "key") for _ in range(3)] == [200] * 3
    assert secret.readings == 2


@pytest.mark.parametrize("text", ["", " , ", "new:typo", "new,new", ":read"])
def test_a_malformed_secret_changes_nothing_and_opens_nothing(text: str, caplog: pytest.LogCaptureFixture) -> None:
    secret, clock = Secret("old"), ManualClock()
    server = serve(secret, clock)
    secret.text = text
    clock.advance(AGE_MS / 1000)
    assert [status(server, key) for key in ("old", "new", "")] == [200, 401, 401]
    assert "keys were not changed" in caplog.text
    assert "new" not in caplog.text


def test_keys_stay_while_the_store_of_secrets_is_away_which_is_asked_no_more_often() -> None:
    secret, clock = Secret("old"), ManualClock()
    server = serve(secret, clock)
    secret.error = TimeoutError()
    clock.advance(AGE_MS / 1000)
    assert [status(server, "old") for _ in range(3)] == [200] * 3
    assert secret.readings == 2
    secret.error, secret.text = None, "new"
    clock.advance(AGE_MS / 1000)
    assert [status(server, key) for key in ("old", "new")] == [401, 200]


def test_a_clock_that_was_set_back_does_not_keep_old_keys() -> None:
    secret, clock = Secret("old"), ManualClock()
    keys = Keyring(secret, clock, age_ms=AGE_MS)
    keys.refresh()
    clock.set_back(3600)
    assert keys.is_stale


def lazy(secret: Secret, clock: ManualClock) -> Server:
    """A server that has had no request yet."""
    keys = Keyring(secret, clock, age_ms=AGE_MS, check=on_lambda)
    return Server(parts=assemble(memory_stores(Settings(metrics_interval_ms=0)), keys))


def test_the_secret_is_read_with_the_first_request_and_not_before() -> None:
    """A version's snapshot is taken before the role of the function may be known everywhere."""
    secret, clock = Secret("key"), ManualClock()
    secret.error = PermissionError("AccessDenied")
    server = lazy(secret, clock)
    assert secret.readings == 0
    secret.error = None
    assert [status(server, key) for key in ("key", "other")] == [200, 401]
    assert secret.readings == 1


def test_nobody_is_served_until_the_secret_was_read_once() -> None:
    secret, clock = Secret("key"), ManualClock()
    secret.error = PermissionError("AccessDenied")
    server = lazy(secret, clock)
    assert [status(server, key) for key in ("key", "other", "")] == [503] * 3
    assert server("GET", "/v1/streams").status == 503
    assert secret.readings == 1, "a store that is away is not asked with each request"
    secret.error = None
    clock.advance(1)
    assert [status(server, key) for key in ("key", "other")] == [200, 401]


@pytest.mark.parametrize("text", ["", "key:typo"])
def test_a_server_serves_nobody_with_keys_that_it_would_refuse_later(text: str) -> None:
    server = lazy(Secret(text), ManualClock())
    assert [server("GET", "/v1/streams").status, status(server, "key")] == [503, 503]


def test_one_thread_reads_and_the_others_go_on_with_what_they_have() -> None:
    reading, release = threading.Event(), threading.Event()
    texts = ["old"]

    def slow() -> str:
        if texts == ["new"]:
            reading.set()
            assert release.wait(10)
        return texts[0]

    clock = ManualClock()
    keys = Keyring(slow, clock, age_ms=AGE_MS)
    keys.refresh()
    texts[0] = "new"
    clock.advance(AGE_MS / 1000)
    reader = threading.Thread(target=keys.refresh)
    reader.start()
    assert reading.wait(10)
    keys.refresh()  # returns at once
    keys.grant("Bearer old")
    release.set()
    reader.join(10)
    keys.grant("Bearer new")
    with pytest.raises(Unauthorized):
        keys.grant("Bearer old")
