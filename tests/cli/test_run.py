"""`./run`, the first command of a clean clone: its help, what it does not know, and the folder that it works in."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = ROOT / "run"
ACCEPTED = re.search(r"^([a-z |]+)\) ;;$", RUN.read_text(), re.MULTILINE)


def run(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Calls `./run` from a folder."""
    return subprocess.run(
        [RUN, *words], cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=60
    )


def commands() -> list[str]:
    assert ACCEPTED is not None
    return ACCEPTED[1].split(" | ")


@pytest.mark.parametrize("words", [(), ("help",), ("--help",), ("-h",)])
def test_help_names_every_command(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run(*words, folder=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    named = re.findall(r"^  \./run (\w+)", done.stdout, re.MULTILINE)
    assert set(named) == {*commands(), "help"}


def test_an_unknown_command_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    done = run("tset", "--full", folder=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "'tset'" in done.stderr
    assert set(commands()) <= set(done.stderr.split())


@pytest.mark.parametrize("command", ["headrace", "dev"])
def test_files_that_a_command_names_are_those_of_the_caller(command: str, tmp_path: Path) -> None:
    """`uv` is one that prints where it is called, and with what."""
    (tmp_path / "bin").mkdir()
    uv = tmp_path / "bin" / "uv"
    uv.write_text('#!/bin/sh\npwd\nprintf "%s\\n" "$@"\n')
    uv.chmod(0o755)
    path = f"{uv.parent}:{os.environ['PATH']}"
    done = run(command, "--state-file", "dev.json", folder=tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    folder, *words = done.stdout.splitlines()
    assert folder == str(tmp_path)
    assert words[words.index("--project") + 1] == str(ROOT)
    assert words[-2:] == ["--state-file", "dev.json"]
