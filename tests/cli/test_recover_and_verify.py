"""`headrace recover` and `headrace verify` on a deployment in memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import main
from headrace.errors import StoreTimeout
from headrace.features.values import lane
from operators import stores as cloud
from tests.support import index_runs
from tests.support.faults import Faulty
from tests.unit.features.world import NS, World, event, table, tx
from tests.unit.recovery.world import Ruins


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Ruins:
    built = Ruins()
    monkeypatch.setattr(cloud, "open_stores", lambda state_file: built.stores)
    return built


def test_a_dry_run_then_a_recovery_then_nothing(world: Ruins) -> None:
    log_id = world.create("orders")
    data = world.fill("orders", 3)
    world.seal(log_id)
    world.lose_tables()
    dry = run("recover", "--dry-run")
    assert (dry.exit_code, "restored" in dry.stdout, "dry run, nothing written" in dry.stdout) == (0, True, True)
    assert not world.entries(log_id)
    report = json.loads(run("recover", "--json").stdout)
    (log,) = report["logs"]
    assert (log["name"], log["status"], log["end_offset"]) == ("orders", "restored", 9)
    assert log["wrote"] == ["generation", "entry", "row", "watermark"]
    assert "unpublished tail" in log["lost"]
    assert world.read("orders") == data
    again = run("recover")
    assert (again.exit_code, again.stdout) == (0, "1 intact\n")
    assert "0 errors, 0 warnings" in run("verify", "orders").stdout


def test_findings_are_an_exit_code_and_a_document(world: Ruins) -> None:
    log_id = world.create("orders")
    world.fill("orders", 4)
    world.seal(log_id)
    assert run("verify").exit_code == 0
    (key, *_) = world.segment_keys(log_id)
    world.objects.delete([key])
    shown = run("verify")
    assert shown.exit_code == 1
    assert "segment.missing" in shown.stdout
    document = run("verify", "--json")
    assert document.exit_code == 1
    (finding,) = json.loads(document.stdout)["findings"]
    assert (finding["kind"], finding["severity"], finding["where"]) == ("segment.missing", "error", key)


def test_a_log_that_is_refused_is_an_exit_code(world: Ruins) -> None:
    log_id = world.create("orders")
    world.fill("orders", 1)
    world.seal(log_id)
    key = world.newest_manifest_key(log_id)
    world.objects.put(key, world.objects.get(key)[:-5])
    world.lose_tables()
    result = run("recover")
    assert result.exit_code == 1
    assert "refused" in result.stdout
    assert key in result.stdout


def test_an_unknown_name_and_a_silent_store(world: Ruins, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("verify", "nobody").exit_code == 1
    objects = Faulty(world.objects)
    objects.fail("list", StoreTimeout, times=10**6)
    object.__setattr__(world.stores, "objects", objects)
    assert run("recover").exit_code == 3


def test_nothing_says_where_the_data_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WAL_TABLE", "CATALOG_TABLE", "WATERMARKS_TABLE", "PRODUCERS_TABLE", "BUCKET"):
        monkeypatch.delenv(f"HEADRACE_{name}", raising=False)
    result = run("recover")
    assert result.exit_code == 2
    assert "HEADRACE_WAL_TABLE" in result.stderr
    state_file = tmp_path / "state.json"
    state_file.write_text("[]")
    assert run("verify", "--state-file", str(state_file)).exit_code == 2


def test_help_teaches() -> None:
    for command in ("recover", "verify"):
        text = run(command, "--help").stdout
        assert "Examples:" in text and "Exit codes:" in text


def test_lanes_are_verified_as_any_log_and_rows_by_their_events(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = World(event(lanes=2, lane_key="user"), table())
    monkeypatch.setattr(cloud, "open_stores", lambda state_file: tables.stores)
    for user in "abcdefgh":
        tables.push(tx(user))
    for number in range(2):
        tables.fold(number=number)
        index_runs.sealed(tables.stores, tables.api, lane(NS, "Tx", number))
    assert "2 logs: 2 segments, 8 records" in run("verify", "default/Tx").stdout
    whole = run("verify", "--rows", "1")
    assert whole.exit_code == 0, whole.stdout
    assert "3 logs: " in whole.stdout, "the registry is one"
    assert "8 rows of feature tables compared, 0 changed meanwhile" in whole.stdout
    assert json.loads(run("verify", "default/Tx", "--rows", "1", "--json").stdout)["rows"] == {
        "compared": 8,
        "changed_meanwhile": 0,
        "not_compared": [],
    }
    del tables.rows.kept[next(key for key in tables.rows.kept if key.entity == "a")]
    shown = run("verify", "--rows", "1")
    assert shown.exit_code == 1
    assert next(line.split() for line in shown.stdout.splitlines() if "row.differs" in line)[-2:] == ["U", "a"]
    assert "1 error" in shown.stdout
