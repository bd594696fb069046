"""Every command and program of the README and of every page is run, in the page's order, and prints what the page says.

A page that starts an emulator with options of its own has it; almost all others share one. What can't be run here is in
`NOT_RUN` with the reason; an entry that no page needs any more fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.sessions import Command, commands, missing
from tests.node import install_packages
from tests.support.emulated_cloud import DevServer, dev_server
from tests.support.uv import find_uv

ROOT = Path(__file__).parents[2]
FLIGHTS = ROOT / "tests" / "e2e"
CLIENTS = ROOT / "tests" / "clients"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
HERE = "127.0.0.1:8787"  # as pages have it
URL = f"http://{HERE}"
COMMAND_S = 240
PATIENCE_S = 120  # for what pages promise for "a moment later"
SOON = ("--seal-age", "1s", "--index-age", "1s")

# What is not run, and why.
NOT_RUN = {
    r"^\./run (dev|test)$": "the set-up itself: the test command is running",
    r"^\./run (synth|prove)\b": "packs for a minute, proves for several: .ci/run runs both",
    r"^npm ci$": "./run synth installs the CDK's command line",
    r"^npx cdk ": "needs an AWS account, or packs for a minute as ./run synth does",
    r"^aws ": "needs an AWS account",
    r"^headrace (doctor --stack|key \w+|rotate-signing-key) ": "needs an AWS account",
    r"^uv run python -m infra\.synth$": "writes into the checkout; tests/infra compares what it would write",
}
# Long, and run for docs/benchmarks.md and docs/verification.md: their options are looked up in their help.
LONG = r"(?s)^uv run (?:--frozen )?python -m ((?:benchmarks|tests)\.\w+)(.*)$"
DEV = r"^(?:\./run|headrace|uv run headrace) dev (.+)$"

# These show offsets of streams that other pages make, too, and a stream that is made again has others; or read more than
# they could if the server forgot everything after each request.
ALONE = {"streams.md", "features-walkthrough.md"}

# These take minutes: they run with `--full`.
FULL = {"features-walkthrough.md"}

# What a page takes for granted.
BEFORE = {
    "operations.md": "headrace create orders",
    "analytics.md": """
        set -e
        headrace create requests
        curl --fail $URL/v1/stream/requests/_schema -d '{"schema": {"type": "object"},
          "search": {"primaryTimestampField": "at", "fields": {
          "at": {"kind": "date", "bindings": [{"version": 1, "jsonPointer": "/at"}], "column": true}}}}'
        headrace append requests --data '[{"at": "2026-11-21T08:00:00Z", "status": 200}]'
        headrace index wait requests --records""",
}


@dataclass(frozen=True)
class Shell:
    """Runs commands as a reader would, in a folder with what the pages name."""

    folder: Path
    server: DevServer

    def run(self, text: str) -> str:
        """Runs a command; returns what it prints to both streams. What it leaves running is ended a second later."""
        script = "\n".join(
            [
                f"URL={self.server.url}",
                text.replace(HERE, self.server.url.partition("//")[2]),
                "status=$?",
                'if [ -n "$(jobs -p)" ]; then sleep 1; kill $(jobs -p); wait; fi 2>/dev/null',
                "exit $status",
            ]
        )
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env={
                **os.environ,
                **self.server.state["environment"],
                "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
                "HEADRACE_URL": self.server.url,
                "XDG_CONFIG_HOME": f"{self.folder}/config",
                "PYTHONUNBUFFERED": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, f"exit code {done.returncode}: {text}\n{done.stdout}"
        return done.stdout


@pytest.fixture(scope="module")
def shared_server() -> Iterator[DevServer]:
    """Yields the emulator of the pages that ask for no options of their own.

    It forgets everything after each request: what a search fetches would otherwise depend on whether the search before it
    came before the index.
    """
    with dev_server(*SOON, "--cold", runs_jobs=True) as server:
        yield server


@pytest.fixture
def shell(tmp_path: Path, page: Path, request: pytest.FixtureRequest) -> Iterator[Shell]:
    for packages in (FLIGHTS, CLIENTS):
        install_packages(packages)
    (tmp_path / "node_modules").symlink_to(CLIENTS / "node_modules")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "bin").mkdir()
    (tmp_path / "run").symlink_to("bin/run")
    flights = json.loads((FLIGHTS / "package.json").read_text())["dependencies"]["vega-datasets"]
    python = shlex.quote(sys.executable)
    here = f"PYTHONPATH={shlex.quote(str(ROOT))}"
    for name, body in (
        ("headrace", f'{here} exec {python} -m cli.main "$@"'),
        (
            "curl",
            'command -p curl -sS "$@"; status=$?; echo; [ $status = 28 ] || exit $status',
        ),  # 28: --max-time is over
        (
            "uv",  # scripts name their packages themselves, and have an environment of their own
            f'[ "$1 $2" = "run --script" ] && exec {shlex.quote(find_uv())} "$@"; '
            f'[ "$1 $2" = "run python" ] || exit 64; shift 2; {here} exec {python} "$@"',
        ),
        ("run", '[ "$1" = headrace ] || exit 64; shift; exec headrace "$@"'),
        (
            "npm",  # the package is installed already
            f'[ "$*" = "pack --silent vega-datasets@{flights}" ] || exit 64; '
            f"tar -czf vega-datasets-{flights}.tgz --transform s,^,package/, "
            f"-C {shlex.quote(str(FLIGHTS))}/node_modules/vega-datasets data/flights-200k.json data/flights-20k.json; "
            f"echo vega-datasets-{flights}.tgz",
        ),
    ):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    options = _dev_options(page)
    with ExitStack() as stack:
        # Pages that say how their emulator is started have it so.
        if options or page.name in ALONE:
            server = stack.enter_context(dev_server(*SOON, *options, runs_jobs=True))
        else:
            server = request.getfixturevalue("shared_server")
        for name in ("dev.json", "state.json"):
            (tmp_path / name).symlink_to(server.state_file)
        (tmp_path / "metrics.emf").symlink_to(server.metrics_file)
        yield Shell(tmp_path, server)


def _dev_options(page: Path) -> list[str]:
    """Returns the options of the first emulator that a page starts, without the paths of its files; none if they are
    those of the shared server.
    """
    for command in commands(page.read_text()):
        started = re.match(DEV, command.text)
        if started:
            options = re.sub(r"--(?:state|metrics)-file \S+", "", started.group(1)).split()
            return [] if options == list(SOON) else options
    return []


def _reason(command: Command) -> str | None:
    return next((reason for pattern, reason in NOT_RUN.items() if re.match(pattern, command.text)), None)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, id=page.name, marks=[pytest.mark.full, pytest.mark.timeout(1200)] if page.name in FULL else []
        )
        for page in PAGES
        if commands(page.read_text())
    ],
)
def test_every_command_of_a_page_runs_and_prints_what_the_page_says(page: Path, shell: Shell) -> None:
    started = 0
    beside = ""  # what runs while the next command does
    shell.run(BEFORE.get(page.name, ":"))
    for command in commands(page.read_text()):
        where = f"{page.name}:{command.line}"
        if _reason(command):
            continue
        if long := re.match(LONG, command.text):
            _check_options(where, long.group(1), long.group(2))
        elif dev := re.match(DEV, command.text):
            started += 1
            if started > 1:
                with dev_server(*dev.group(1).split()) as other:
                    assert other.ready_line.startswith("headrace is ready at "), where
            else:
                assert missing(command.output, shell.server.ready_line.replace(shell.server.url, URL)) is None, where
        elif command.text.endswith("&"):
            beside = f"{command.text} sleep 1; "
        else:
            printed, line = "", ""
            within = time.monotonic() + (PATIENCE_S if command.is_look else 0)
            while True:
                printed = shell.run(beside + command.text).replace(shell.server.url, URL)
                line = missing(command.output, printed, in_order=command.is_in_order and not beside)
                if line is None or time.monotonic() > within:
                    break
                time.sleep(1)  # asks again: the page shows what is there in the end
            beside = ""
            assert line is None, f"{where}: not printed: {line}\n--- printed:\n{printed}"


def _check_options(where: str, module: str, rest: str) -> None:
    """A long command exists, and knows every option that the page gives it."""
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_S
    )
    assert done.returncode == 0, f"{where}: {done.stderr}"
    for option in re.findall(r"--[\w-]+", re.sub(r'"[^"]*"', "", rest)):
        assert re.search(rf"{option}\b", done.stdout), f"{where}: {module} has no {option}"


def test_nothing_is_left_out_that_no_page_has() -> None:
    texts = [command.text for page in PAGES for command in commands(page.read_text())]
    for pattern in NOT_RUN:
        assert any(re.match(pattern, text) for text in texts), pattern
