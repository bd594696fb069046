"""Laws of `headrace dev`'s options, without starting anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.units import format_duration, parse_bytes, parse_duration_ms
from functions.hosts import is_loopback
from local.dev import command
from local.dev_settings import DevSettings, InvalidSettings


def settings(environ: dict[str, str] | None = None, **options: Any) -> DevSettings:
    defaults = {
        "host": "127.0.0.1",
        "port": 0,
        "api_processes": 1,
        "template": Path("t"),
        "app": "a:b",
        "sockets": "a.b",
        "log_level": "info",
        "seed": 0,
        "cold": False,
    }
    return DevSettings.from_options({**defaults, **options}, environ or {})


def test_options_become_settings_of_the_application() -> None:
    chosen = settings(seal_records=10, seal_bytes=1024, seal_age=1000, trim_age=70_000, state_age=60_000, cold=True)
    assert chosen.environment == {
        "HEADRACE_SEAL_RECORDS": "10",
        "HEADRACE_SEAL_BYTES": "1024",
        "HEADRACE_SEAL_AGE_MS": "1000",
        "HEADRACE_TRIM_AGE_MS": "70000",
        "HEADRACE_STATE_AGE_MS": "60000",
        "HEADRACE_COLD": "1",
        "HEADRACE_HOST": "127.0.0.1",
        "HEADRACE_ALLOWED_HOSTS": "localhost",
    }


def test_a_trim_age_below_state_age_plus_the_longest_request_is_refused() -> None:
    settings(trim_age=65_000)
    with pytest.raises(InvalidSettings, match="the minimum is 65s"):
        settings(trim_age=64_999)
    with pytest.raises(InvalidSettings, match="the minimum is 15s"):
        settings(trim_age=14_000, state_age=10_000)
    with pytest.raises(InvalidSettings, match="the minimum is 80s"):
        settings({"HEADRACE_APPEND_TIMEOUT_MS": "20000"}, trim_age=70_000)
    # Raising the state age alone can cross the line as well.
    with pytest.raises(InvalidSettings, match="--trim-age 15m is too short"):
        settings(state_age=900_000)


def test_a_door_to_other_machines_needs_keys() -> None:
    with pytest.raises(InvalidSettings, match=r"HEADRACE_API_KEYS.*HEADRACE_ALLOW_INSECURE_NO_AUTH=1"):
        settings(host="0.0.0.0")
    assert settings({"HEADRACE_API_KEYS": "k"}, host="0.0.0.0").environment["HEADRACE_HOST"] == "0.0.0.0"
    settings({"HEADRACE_ALLOW_INSECURE_NO_AUTH": "1"}, host="0.0.0.0")


def test_a_server_that_requires_keys_may_be_open_and_has_its_own(tmp_path: Path) -> None:
    keyed = settings(host="0.0.0.0", require_key=True, state_file=tmp_path / "dev.json")
    assert keyed.require_key and keyed.environment["HEADRACE_HOST"] == "0.0.0.0"
    with pytest.raises(InvalidSettings, match="--state-file"):
        settings(require_key=True)
    with pytest.raises(InvalidSettings, match="unset HEADRACE_API_KEYS"):
        settings({"HEADRACE_API_KEYS": "k"}, require_key=True, state_file=tmp_path / "dev.json")


@pytest.mark.parametrize(
    ("environ", "allow_host", "obeyed"),
    [
        ({}, (), "localhost"),
        ({}, ("Demo.internal", "fd00::1"), "demo.internal,fd00::1"),
        ({"HEADRACE_ALLOWED_HOSTS": "db"}, (), "db"),
        ({"HEADRACE_ALLOWED_HOSTS": "db"}, ("demo",), "demo"),
        ({}, ("*",), "*"),
        # Who lets anyone in from anywhere has no use for a list, unless one is given.
        ({"HEADRACE_ALLOW_INSECURE_NO_AUTH": "1"}, (), "*"),
        ({"HEADRACE_ALLOW_INSECURE_NO_AUTH": "1"}, ("demo",), "demo"),
    ],
)
def test_whom_a_server_without_keys_obeys(environ: dict[str, str], allow_host: tuple[str, ...], obeyed: str) -> None:
    assert settings(environ, allow_host=allow_host).environment["HEADRACE_ALLOWED_HOSTS"] == obeyed


@pytest.mark.parametrize("wrong", ["http://demo", "demo:8787", "demo/", "a b", "[::1]", "*.demo,x y"])
def test_a_host_is_given_without_scheme_and_port(wrong: str) -> None:
    with pytest.raises(InvalidSettings, match="--allow-host: not a host name"):
        settings(allow_host=(wrong,))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *[(host, True) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost", "demo.localhost")],
        *[(host, False) for host in ("0.0.0.0", "db", "localhost.evil.example", "127.0.0.1.evil.example", "")],
    ],
)
def test_loopback_is_told_from_the_rest(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(("text", "ms"), [("500ms", 500), ("1s", 1000), ("5m", 300_000), ("1.5h", 5_400_000)])
def test_durations_are_read_and_written(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms
    assert parse_duration_ms(format_duration(ms)) == ms


@pytest.mark.parametrize(("text", "size"), [("7", 7), ("64KiB", 65_536), ("16MiB", 1 << 24), ("1MB", 1_000_000)])
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1 year"])
def test_a_bad_duration_shows_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="500ms, 1s or 5m"):
        parse_duration_ms(text)


def test_help_teaches_with_examples() -> None:
    answer = CliRunner().invoke(command, ["--help"])
    assert answer.exit_code == 0
    assert "headrace dev --seal-age 1s --seal-records 10" in answer.output


def test_refusals_are_one_sentence_and_exit_code_2() -> None:
    answer = CliRunner().invoke(command, ["--host", "0.0.0.0"], env={"HEADRACE_API_KEYS": ""})
    assert answer.exit_code == 2
    assert "no API key is set" in answer.output


def test_index_options_become_settings() -> None:
    chosen = settings({}, index_age=1000, index_segments=1, compact_fanout=2, index_jobs=0).environment
    assert chosen["HEADRACE_INDEX_AGE_MS"] == "1000"
    assert chosen["HEADRACE_INDEX_SEGMENTS"] == "1"
    assert chosen["HEADRACE_COMPACT_FANOUT"] == "2"
    assert chosen["HEADRACE_INDEX_JOBS"] == "0"
    assert "HEADRACE_INDEX_AGE_MS" not in settings({}).environment


def test_merge_options_become_settings() -> None:
    chosen = settings({}, merge_segments=4, merge_age=2000, merge_retire=60_000).environment
    assert chosen["HEADRACE_MERGE_SEGMENTS"] == "4"
    assert chosen["HEADRACE_MERGE_AGE_MS"] == "2000"
    assert chosen["HEADRACE_MERGE_RETIRE_MS"] == "60000"


@pytest.mark.parametrize(
    "arguments",
    [["--index-segments", "0"], ["--compact-fanout", "1"], ["--index-age", "5"], ["--merge-segments", "1"]],
)
def test_an_index_option_that_makes_no_sense_is_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(command, arguments).exit_code == 2
