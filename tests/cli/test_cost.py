"""`headrace cost`: what it prints for a person and a script, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import main


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["cost", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_a_bill_has_its_sum_its_idle_part_the_peers_and_what_was_assumed() -> None:
    shown = run("--appends-per-month", "10e6", "--batch", "100")
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    (total,) = [line for line in lines if line.startswith("sum ")]
    document = json.loads(run("--appends-per-month", "10e6", "--batch", "100", "--json").stdout)
    assert total.split()[1:] == [f"{document['usd']:,.2f}", "100.0%", f"{document['idle_usd']:,.2f}"]
    for name in ("kinesis", "self-hosted", "headrace"):
        assert any(line.startswith(name) for line in lines), name
    assert any(line.startswith("assumed: dynamodb_ms=") for line in lines)
    assert "check them" in lines[-1]


def test_the_document_adds_up() -> None:
    document = json.loads(run("--appends-per-month", "1e6", "--searches", "1e5", "--json").stdout)
    assert sum(line["usd"] for line in document["lines"]) == pytest.approx(document["usd"])
    assert sum(line["idle_usd"] for line in document["lines"]) == pytest.approx(document["idle_usd"])
    assert document["workload"]["indexed"] is True
    assert document["streams_alone_usd"] < document["usd"]
    for peer in document["peers"].values():
        assert sum(peer["parts"].values()) == pytest.approx(peer["usd"])


def test_searches_mean_an_index_unless_told_otherwise() -> None:
    found = {
        flags: json.loads(run("--appends-per-month", "1e6", "--metrics-interval", "0s", *flags, "--json").stdout)[
            "index_jobs"
        ]["runs"]
        for flags in ((), ("--searches", "1"), ("--searches", "1", "--not-indexed"), ("--indexed",))
    }
    assert [bool(runs) for runs in found.values()] == [False, True, False, True]


def test_other_prices_and_their_region(tmp_path: Path) -> None:
    prices = tmp_path / "mine.toml"
    prices.write_text(
        "[kms.key]\nusd = 7\nper = 1\nunit = 'key-month'\nas_of = 2026-01-31\nsource = 'https://example.com'\n"
    )
    before = json.loads(run("--json").stdout)
    after = json.loads(run("--json", "--prices", str(prices), "--region-note", "eu-central-1").stdout)
    assert after["usd"] == pytest.approx(before["usd"] + 6)
    assert (before["region"], after["region"]) == ("us-east-1", "eu-central-1")
    assert "2026-01-31" in run("--show-prices", "--prices", str(prices)).stdout


def test_unit_prices() -> None:
    shown = run("--units").stdout
    assert "USD per M appends" in shown
    document = json.loads(run("--units", "--json").stdout)
    single = next(one for one in document["appends"] if (one["record_bytes"], one["batch"]) == (500, 1))
    assert single["million_appends"] == single["million_records"] > 0
    assert document["searches"]["exact requestId"]["opened"] < document["searches"]["exact requestId"]["cold_process"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--appends-per-month", "many"), "is no number"),
        (("--appends-per-month", "-1"), "out of range"),
        (("--appends-per-month", "nan"), "out of range"),
        (("--batch", "0"), "0 is not in the range"),
        (("--query", "nonsense"), "no such class of query"),
        (("--seal-age", "0s"), "ages must be above 0"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_bad_price_file_is_named(tmp_path: Path) -> None:
    prices = tmp_path / "mine.toml"
    prices.write_text("[dynamodb.wrote]\nusd = 1\nper = 1\nunit = 'u'\nas_of = 2026-01-31\nsource = 's'\n")
    result = run("--prices", str(prices))
    assert result.exit_code == 2
    assert "mine.toml" in result.stderr
    assert "dynamodb.wrote" in result.stderr
