"""The command group `headrace context`: saved servers and keys."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cli.contexts import Saved, choose, context_names, contexts_path, read_contexts
from cli.errors import BadInput
from cli.groups import CommandGroup
from cli.options import base_url, example, json_option, print_json
from cli.tables import Column, print_table
from cli.terminal import say

EPILOG = """\b
Examples:
  headrace context                              # what is used now, and why
  headrace context add prod --url https://abc.on.aws --use
  headrace list                                 # of prod, with its key
  headrace list --context dev                   # of another server, once

\b
What a command uses is the first of these that names a server, and the first
that names a key:
  1  its options --url, --key; --context
  2  HEADRACE_URL, HEADRACE_API_KEY; HEADRACE_CONTEXT
  3  the context in use (`headrace context use`)
  4  http://127.0.0.1:8787, without a key
A saved key is only sent to the server that it was saved for.
"""


@click.group(cls=CommandGroup, invoke_without_command=True, epilog=EPILOG)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Save servers and their keys, and choose the one that commands use.

    Without a COMMAND, says which server and key are used now. Contexts are in a file that only you can read; a key is
    never shown, unless you ask for it.
    """
    if ctx.invoked_subcommand is not None:
        return
    choice = choose()
    say(f"context  {choice.context or 'none'}")
    say(f"server   {choice.url}  ({choice.url_source})")
    say(f"key      {f'there is one  ({choice.key_source})' if choice.key else 'none'}")


@command.command(
    "add",
    epilog=example(
        "headrace context add dev --url http://127.0.0.1:8787",
        "headrace context add prod --url https://abc.on.aws --key-file - < key.txt",
        "headrace key create --secret ARN | headrace context add prod \\",
        "      --url https://abc.on.aws --key-file - --use",
    ),
)
@click.argument("name")
@click.option("--url", required=True, help="The server.")
@click.option("--key", help="API key; a shell may remember it: better --key-file.")
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Read the key from this file; - is standard input.",
)
@click.option("--use", is_flag=True, help="Use it from now on.")
@click.option("--replace", is_flag=True, help="Replace a context with this name.")
def add(name: str, url: str, key: str | None, key_file: Path | None, use: bool, replace: bool) -> None:
    """Save a server, and its key if it needs one, as NAME."""
    if key is not None and key_file is not None:
        raise BadInput("--key and --key-file exclude each other")
    if not name:
        raise BadInput("a name can't be empty")
    contexts = read_contexts()
    if name in contexts.saved and not replace:
        raise BadInput(f"there is a context with this name: {name}", "--replace replaces it")
    contexts.saved[name] = Saved(base_url(url), _read_key(key_file) if key_file else key)
    if use:
        contexts.current = name
    contexts.write()
    say(f"saved {name} in {contexts_path()}")
    say(f"used from now on: {name}" if use else f"`headrace context use {name}` makes commands use it", err=True)


def _read_key(path: Path) -> str:
    text = (sys.stdin.read() if str(path) == "-" else path.read_text(errors="replace")).strip()
    if not text or len(text.split()) > 1:
        raise BadInput(f"{'standard input' if str(path) == '-' else path}: a key is one word")
    return text


@command.command("use", epilog=example("headrace context use prod", "headrace context use --none"))
@click.argument("name", required=False, shell_complete=context_names)
@click.option("--none", "no_context", is_flag=True, help="Use no context.")
def use(name: str | None, no_context: bool) -> None:
    """Use the context NAME from now on."""
    if (name is None) is not no_context:
        raise BadInput("give the NAME of a context, or --none", "`headrace context list` shows them")
    contexts = read_contexts()
    if name is not None:
        contexts.get(name)
    contexts.current = name
    contexts.write()
    say(f"used from now on: {name or 'no context'}")


@command.command("list", epilog=example("headrace context list", "headrace context list --json | jq -r '.[].name'"))
@json_option
def list_(as_json: bool) -> None:
    """List the saved contexts. A star marks the one in use."""
    contexts = read_contexts()
    rows = [
        {"name": name, "url": saved.url, "has_key": saved.key is not None, "current": name == contexts.current}
        for name, saved in sorted(contexts.saved.items())
    ]
    if as_json:
        print_json(rows)
    elif rows:
        columns = [Column(""), Column("name"), Column("url"), Column("key")]
        print_table(
            columns,
            (
                ["*" if row["current"] else "", row["name"], row["url"], "yes" if row["has_key"] else "no"]
                for row in rows
            ),
        )
    else:
        say("no contexts; `headrace context add NAME --url URL` saves one", err=True)


@command.command("show", epilog=example("headrace context show prod", "headrace context show prod --show-key"))
@click.argument("name", shell_complete=context_names)
@click.option("--show-key", is_flag=True, help="Print the key, too.")
@json_option
def show(name: str, show_key: bool, as_json: bool) -> None:
    """Show the server of the context NAME; its key only with --show-key."""
    contexts = read_contexts()
    saved = contexts.get(name)
    facts: dict[str, object] = {"name": name, "url": saved.url, "current": name == contexts.current}
    facts |= {"key": saved.key} if show_key else {"has_key": saved.key is not None}
    if as_json:
        print_json(facts)
        return
    for label, fact in facts.items():
        shown = fact if isinstance(fact, str) else "none" if fact is None else "yes" if fact else "no"
        say(f"{label.replace('_', ' '):9}{shown}")


@command.command("remove", epilog=example("headrace context remove prod"))
@click.argument("name", shell_complete=context_names)
def remove(name: str) -> None:
    """Forget the context NAME with its key. The server is not asked, and the key stays valid."""
    contexts = read_contexts()
    contexts.get(name)
    del contexts.saved[name]
    if contexts.current == name:
        contexts.current = None
    contexts.write()
    say(f"removed {name}")
