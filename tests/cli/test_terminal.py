"""What commands print can't steer the terminal, whatever a server sends; files and pipes get the exact bytes."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console
from rich.progress import Progress

from cli import tables
from cli.main import main
from cli.output import Label
from cli.tables import Column, print_table
from cli.terminal import clean, output, say, say_beside
from tests.cli.conftest import Shell
from tests.cli.fake_server import FakeServer, Stream

ROOT = Path(__file__).parents[2]
STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
EVIL = "a\x1b[2Jb\x9b31mc\x07d\x7fe\rf\x00g\x85h[red]i"
SHOWN = r"a\u001b[2Jb\u009b31mc\u0007d\u007fe\rf\u0000g\u0085h[red]i"


def test_everything_is_printed_in_one_place() -> None:
    prints = re.compile(r"\bclick\.s?echo\b|(?<!\.)\bprint\(|sys\.stdout|sys\.stderr(?!\.isatty)|\bConsole\(")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("cli", "operators")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name != "terminal.py"
        for line in path.read_text().splitlines()
        if prints.search(line)
    ]
    assert found == []


def test_a_line_for_people_has_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    say(EVIL)
    say(EVIL + "\n\u2028\ud800", err=True)
    assert capsys.readouterr() == (SHOWN + "\n", SHOWN + r"\n\u2028\ud800" + "\n")
    assert clean("über 日本 \U0001f600") == "über 日本 \U0001f600"


def test_progress_shows_text_as_it_is() -> None:
    progress = Progress(disable=True)
    progress.add_task(EVIL, note=EVIL)
    for column in (Label(), Label("note")):
        assert column.render(progress.tasks[0]).plain == SHOWN


class Terminal(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


@contextmanager
def on_terminal() -> Iterator[Terminal]:
    """Makes standard output a terminal. No fixture, because pytest replaces standard output in each phase of a test."""
    terminal, before = Terminal(), sys.stdout
    sys.stdout = terminal
    try:
        yield terminal
    finally:
        sys.stdout = before


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (EVIL.encode(), SHOWN),
        (b"one\ttwo\r\nthree\n", "one\ttwo\r\nthree\n"),
        (b"\x9b31m\xff\xc2", r"\x9b31m\xff\xc2"),
        (json.dumps({"k": EVIL}, ensure_ascii=False).encode(), json.dumps({"k": EVIL}).replace("\x7f", r"\u007f")),
    ],
)
def test_a_terminal_gets_escapes(data: bytes, shown: str) -> None:
    with on_terminal() as terminal:
        assert output().write(data) == len(data)
    assert terminal.shown == shown


def resources(name: str) -> dict[str, Callable[[httpx.Request], httpx.Response]]:
    """Answers in which each text that a server chooses is evil."""
    part = {
        **dict.fromkeys(("bytes_at_rest", "object_count", "lag_segments", "lag_ms", "covered_segment_count"), 0),
        "family": EVIL,
        "fields": [EVIL],
        "updated_at": EVIL,
        "indexed_segment_count": 0,
        "configured": True,
    }
    status = {
        "segments": {"uploaded_count": 0},
        "search_families": [part],
        "routing_key_index": part,
        "routing_key_lexicon": part,
        "exact_indexes": [],
        "profile": EVIL,
        "desired_index_plan_generation": EVIL,
    }
    documents: dict[str, Any] = {
        "_search": {
            "hits": [{"offset": EVIL, "score": 0, "fields": {EVIL: EVIL}, "source": {"k": EVIL}}],
            "next_search_after": [EVIL],
            "total": {"value": 1},
            "explain": {EVIL: {EVIL: [EVIL]}},
            "coverage": {"complete": False, f"possible_missing_{EVIL}": 1},
        },
        "_aggregate": {
            "buckets": [{"start": EVIL, "groups": [{"key": {EVIL: EVIL}, "measures": {EVIL: {"count": 1}}}]}],
            "explain": {EVIL: EVIL},
        },
        "_routing_keys": {"keys": [EVIL], "next_after": EVIL},
        "_index_status": status,
        "_details": {"index_status": status, "stream": {"pending_rows": 1}},
    }
    return {
        f"{name}/{resource}": lambda request, body=body: httpx.Response(
            200, content=json.dumps(body, ensure_ascii=False).encode(), headers={"etag": "x"}
        )
        for resource, body in documents.items()
    }


COMMANDS = [
    ["create", EVIL],
    ["append", EVIL, "--data", "1"],
    ["info", EVIL],
    ["list"],
    ["keys", EVIL, "--limit", "1"],
    ["search", EVIL, "q", "--explain", "--limit", "1"],
    ["aggregate", EVIL, "r", "--interval", "1h", "--last", "1h", "--explain"],
    ["index", "status", EVIL],
    ["index", "status"],
    ["index", "wait", EVIL, "--records", "--timeout", "0"],
    ["delete", EVIL, "--yes"],
]


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]).split("a\x1b")[0])
def test_no_text_of_a_server_steers_the_terminal(
    headrace: Shell, server: FakeServer, command: list[str], refused: bool
) -> None:
    server.streams[EVIL] = Stream("application/json", [b"1"])
    server.resources.update(resources(EVIL))
    if refused:
        error = json.dumps({"error": {"message": EVIL}}, ensure_ascii=False).encode()
        server.faults += [lambda request, apply: httpx.Response(400, content=error)] * 3
    result = headrace(*command)
    assert result.exit_code == (1 if refused or "wait" in command else 0), result.output
    assert not STEERING.search(result.output), ascii(result.output)
    assert SHOWN in result.output or (command[0] == "append" and not refused)


@pytest.mark.parametrize(
    ("command", "content_type"),
    [
        (["read", "s", "--format", "json"], "application/json"),
        (["read", "s"], "text/plain"),
        (["read", "s", "--format", "lines"], "application/json"),
        (["tail", "s", "--from", "-1"], "application/json"),
        (["tail", "s", "--from", "-1"], "text/plain"),
        (["tail", "s", "--from", "-1", "--json"], "application/json"),
        (["tail", "s", "--from", "-1", "--json"], "text/plain"),
    ],
)
def test_records_are_exact_in_a_pipe_and_escaped_on_a_terminal(
    headrace: Shell, server: FakeServer, command: list[str], content_type: str
) -> None:
    is_json = content_type == "application/json"
    record = json.dumps({"k": EVIL}, ensure_ascii=False) if is_json else EVIL
    server.streams["s"] = Stream(content_type, [record.encode()], closed=True)
    piped = headrace(*command).stdout_bytes.decode()
    assert "\x9b31m" in piped
    if "--json" not in command:
        assert record in piped
    with on_terminal() as terminal:
        main.main(command, standalone_mode=False)
    assert not STEERING.search(terminal.shown), ascii(terminal.shown)
    assert r"b\u009b31m" in terminal.shown
    if is_json or "--json" in command:
        assert json.loads(terminal.shown) == json.loads(piped)


OFFSET = "0000000000000000X9G0000000"
MOMENT = "2026-11-28T18:26:26.861Z"


def table_on_terminal(monkeypatch: pytest.MonkeyPatch, columns: list[Column], row: list[object]) -> list[str]:
    shown = io.StringIO()
    to = Console(file=shown, width=80, force_terminal=True, color_system=None, highlight=False, markup=False)
    monkeypatch.setattr(tables, "console", lambda: to)
    print_table(columns, [row, row])
    lines = [line.rstrip() for line in shown.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    return lines


def test_a_table_wraps_texts_and_keeps_offsets_and_numbers_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [Column("offset"), Column("so many records", True), Column("at"), Column("service"), Column("message")]
    row: list[object] = [OFFSET, "123,456,789", MOMENT, "checkout-eu-west", "card declined by the issuer"]
    lines = table_on_terminal(monkeypatch, columns, row)
    (first, *rest) = [line for line in lines if line.startswith(OFFSET)]
    assert rest == [first] and "123,456,789" in first and "2026-11-28T  " in first
    assert any("18:26:26.861Z" in line for line in lines)
    assert "declined" in " ".join(lines)


def test_columns_without_room_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = [Column("offset"), *(Column(f"number {number}", True) for number in range(9))]
    lines = table_on_terminal(monkeypatch, columns, [OFFSET, *["1,234,567"] * 9])
    assert lines[-1].count("1,234,567") == 4
    assert "no room for number 4, number 5" in capsys.readouterr().err


def test_a_table_in_a_pipe_has_a_row_a_line_and_all_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Column("offset"), Column("text"), Column("at")], [[OFFSET, "word " * 40, MOMENT]] * 2)
    _title, first, second = capsys.readouterr().out.splitlines()
    assert first == second and MOMENT in first


def test_what_is_beside_a_name_goes_on_below_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with on_terminal() as terminal:
        say_beside("warn    alarms  ", "one rings, two have no data; " + EVIL)
    first, second, *_ = terminal.shown.splitlines()
    assert (first, second) == ("warn    alarms  one rings, two have no", "                data;")
