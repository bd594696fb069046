"""What helps somebody who types: suggestions for typos, completion by the shell, a start without delay, help."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import click
import pytest
from click.testing import CliRunner

from cli.groups import CommandGroup
from cli.main import main
from tests.cli.conftest import Shell

START_S = 0.3


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Yields every command of `headrace` with its full name, groups included."""

    def below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        yield name, command
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name)
            for part in command.list_commands(context):
                found = command.get_command(context, part)
                assert found is not None
                yield from below(f"{name} {part}", found)

    return below("headrace", main)


ALL = dict(all_commands())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("topics", "topic"),
        ("queues", "queue"),
        ("appned", "append"),
        ("ls", "list"),
        ("rm", "delete"),
        ("streams", "list"),
        ("context lst", "list"),
        ("topic ls", "list"),
        ("features list", "ls"),
        ("queue dead-letters lst", "list"),
        ("subscription remove x", "delete"),
        ("index rebiuld", "rebuild"),
    ],
)
def test_a_typo_is_answered_with_the_command_that_was_meant(headrace: Shell, typed: str, meant: str) -> None:
    refused = headrace(*typed.split())
    assert refused.exit_code == 2
    assert f"'{meant}'" in refused.stderr.partition("Did you mean")[2], refused.stderr


def test_what_resembles_nothing_is_refused_without_a_guess(headrace: Shell) -> None:
    refused = headrace("xyzzy")
    assert refused.exit_code == 2 and "No such command 'xyzzy'.\n" in refused.stderr
    assert "'--limit'" in headrace("list", "--limt", "3").stderr


def test_every_group_suggests() -> None:
    assert [name for name, command in ALL.items() if isinstance(command, click.Group)] == [
        name for name, command in ALL.items() if isinstance(command, CommandGroup)
    ]


def complete(*words: str, shell: str = "bash", instruction: str = "complete") -> str:
    environment = {
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_HEADRACE_COMPLETE": f"{shell}_{instruction}",
    }
    done = CliRunner().invoke(main, [], prog_name="headrace", env=environment)
    assert done.exit_code in (0, 1), done.output
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_produced_for_each_shell(shell: str) -> None:
    script = complete(shell=shell, instruction="source")
    assert "_HEADRACE_COMPLETE" in script and f"{shell}_complete" in script


def test_commands_and_contexts_are_completed(headrace: Shell) -> None:
    assert complete("headrace", "to").split() == ["plain,topic"]
    assert complete("headrace", "doc").split() == ["plain,doctor"]
    assert complete("headrace", "index", "re").split() == ["plain,rebuild"]
    assert complete("headrace", "queue", "dead-letters", "l").split() == ["plain,list"]
    assert complete("headrace", "list", "--al").split() == ["plain,--all"]
    for name in ("prod", "preview", "dev"):
        headrace("context", "add", name, "--url", "http://a.test")
    assert complete("headrace", "context", "use", "pr").split() == ["plain,preview", "plain,prod"]
    assert complete("headrace", "list", "--context", "d").split() == ["plain,dev"]


def test_completion_of_commands_imports_none_of_them() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from cli.main import main; "
        "env = {'COMP_WORDS': 'headrace ', 'COMP_CWORD': '1', '_HEADRACE_COMPLETE': 'bash_complete'}; "
        "done = CliRunner().invoke(main, [], prog_name='headrace', env=env); assert 'plain,append' in done.stdout; "
        "print([m for m in sys.modules if m.startswith('cli.commands') or m in ('httpx', 'rich', 'boto3')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_start_takes_less_than_300_ms_of_a_processor() -> None:
    def seconds(*arguments: str) -> float:
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "cli.main", *arguments], capture_output=True, check=True)
        after = getrusage(RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    for arguments in (["--help"], ["append", "--help"], ["context"]):
        assert min(seconds(*arguments) for _ in range(3)) < START_S, arguments


def test_the_page_of_the_command_line_has_every_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    cells = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    names = [f"headrace {name}" for cell in cells for name in re.findall(r"`([a-z -]+)`", cell)]
    assert sorted(names) == sorted(name for name, one in ALL.items() if not isinstance(one, click.Group))


@pytest.mark.parametrize("name", ALL)
def test_every_help_shows_an_example(name: str) -> None:
    command = ALL[name]
    with click.Context(command, info_name=name) as context:
        _usage, _, text = command.get_help(context).partition("\n\n")
    assert name in text
