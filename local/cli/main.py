"""`headrace`: the group of commands. A command's module is imported only when that command runs."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import click

from local.cli.errors import EXIT_INTERRUPTED, CliError

DEFAULT_URL = "http://127.0.0.1:8787"


class Lazy(NamedTuple):
    """Where a command lives, and its line in `headrace --help`."""

    target: str
    summary: str


COMMANDS = {
    "dev": Lazy("local.dev:command", "Run the whole product on this machine."),
    "create": Lazy("local.cli.commands.create:command", "Create a stream, or a fork of one."),
    "append": Lazy(
        "local.cli.commands.append:command", "Append records from files, standard input or the command line."
    ),
    "read": Lazy("local.cli.commands.read:command", "Read what is in a stream, then stop."),
    "tail": Lazy("local.cli.commands.tail:command", "Follow a stream live until it is closed."),
    "info": Lazy("local.cli.commands.info:command", "Show a stream's type, end, expiry and whether it is closed."),
    "list": Lazy("local.cli.commands.list:command", "List the streams of a server."),
    "delete": Lazy("local.cli.commands.delete:command", "Delete a stream and its data."),
    "search": Lazy("local.cli.commands.search:command", "Find records by a query."),
    "aggregate": Lazy("local.cli.commands.aggregate:command", "Sum up records by time and dimensions."),
    "keys": Lazy("local.cli.commands.keys:command", "List the routing keys of a stream."),
    "index": Lazy("local.cli.commands.index:command", "Show, await or renew the indexes of streams."),
    "verify": Lazy("local.cli.commands.verify:command", "Check that everything stored is whole and agrees."),
    "recover": Lazy("local.cli.commands.recover:command", "Rebuild lost tables from the bucket."),
    "doctor": Lazy("local.cli.commands.doctor:command", "Look whether a deployment is well, and say what to do."),
    "cost": Lazy("local.cli.commands.cost:command", "Reckon what a month costs, here and elsewhere."),
}

EPILOG = """\b
Examples:
  headrace dev                                       # in one terminal
  headrace create orders                             # in another
  headrace append orders --data '{"id": 1}'
  headrace append orders --file orders.jsonl
  headrace read orders --format lines
  headrace tail orders
  headrace search orders 'status:open total:>100'    # once its schema has search fields

\b
Server and key, before or after the command's name:
  --url or HEADRACE_URL
  --key or HEADRACE_API_KEY      sent as a bearer token

\b
Exit codes:
  0  done
  1  the server refused
  2  the command line or its input is wrong
  3  the server could not be reached, or stopped answering
"""


class LazyGroup(click.Group):
    """Lists commands without importing them, and turns a `CliError` into one message and its exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        module_name, _, attribute = lazy.target.partition(":")
        command = getattr(import_module(module_name), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CliError as error:
            click.echo(f"error: {error.message}", err=True)
            if error.hint:
                click.echo(f"  hint: {error.hint}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace")
@click.option("--url", envvar="HEADRACE_URL", default=DEFAULT_URL, show_default=True, help="The server.")
@click.option("--key", envvar="HEADRACE_API_KEY", help="API key; better set in HEADRACE_API_KEY.")
def main(url: str, key: str | None) -> None:
    """Durable streams over HTTP: create, append, read, follow.

    NAME is a stream's name, whatever characters it has, or the full URL of a stream.
    """


if __name__ == "__main__":
    main()
