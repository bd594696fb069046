"""`headrace`: the group of commands. A command's module is imported only when that command runs.

Other packages join their commands through the entry point group `headrace.commands`: each entry point names a dict of
command name (`doctor`, or `index rebuild`) to module, attribute and summary.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NamedTuple

import click

from cli.errors import EXIT_INTERRUPTED, CliError
from cli.signals import ARGUMENTS
from cli.terminal import clean, say

DEFAULT_URL = "http://127.0.0.1:8787"
ENTRY_POINTS = "headrace.commands"


class Lazy(NamedTuple):
    """A command that is imported only when it runs: its module and attribute, its line in the help, and the extra of
    the package `headrace` that it needs, if any.
    """

    target: str
    summary: str
    extra: str = ""


COMMANDS = {
    "create": Lazy("cli.commands.streams:create", "Create a stream, or a fork of one."),
    "append": Lazy("cli.commands.append:command", "Append records from files, standard input or the command line."),
    "read": Lazy("cli.commands.read:command", "Read what is in a stream, then stop."),
    "tail": Lazy("cli.commands.tail:command", "Follow a stream live until it is closed."),
    "info": Lazy("cli.commands.streams:info", "Show a stream's type, end, expiry and whether it is closed."),
    "list": Lazy("cli.commands.streams:list_", "List the streams of a server."),
    "delete": Lazy("cli.commands.streams:delete", "Delete a stream and its data."),
    "search": Lazy("cli.commands.search:command", "Find records by a query."),
    "aggregate": Lazy("cli.commands.aggregate:command", "Summarize records by time and dimensions."),
    "keys": Lazy("cli.commands.keys:command", "List the routing keys of a stream."),
    "topic": Lazy("cli.commands.topic:command", "Topics: logs with tags, time limits and caps."),
    "queue": Lazy("cli.commands.queue:command", "Queues of jobs, and workers for them."),
    "router": Lazy("cli.commands.router:command", "Rules that copy records from topic to topic."),
    "watch": Lazy("cli.commands.watch:command", "Follow many topics over one connection."),
    "features": Lazy("cli.commands.features:command", "Feature tables: register, push events, read features."),
    "work": Lazy("cli.commands.work:command", "Run a command for what is appended to streams, shared by workers."),
    "subscription": Lazy("cli.commands.subscription:command", "Subscriptions: wake a worker or a webhook."),
    "index": Lazy("cli.commands.index:command", "Show the indexes of streams, wait for them, or rebuild them."),
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


@cache
def joined_commands() -> Mapping[str, Lazy]:
    """Returns the commands that other packages add, by name."""
    return {
        name: Lazy(target, summary, point.name)
        for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
        for name, (target, summary) in point.load().items()
    }


class JoinedGroup(click.Group):
    """A command group that lists commands without importing them: its own, and those that other packages add."""

    prefix = ""
    lazy: Mapping[str, Lazy] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *self.lazy, *self._joined()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self.lazy.get(cmd_name) or self._joined().get(cmd_name)
        if lazy is None:
            return super().get_command(ctx, cmd_name)
        module_name, _, attribute = lazy.target.partition(":")
        try:
            command = getattr(import_module(module_name), attribute)
        except ModuleNotFoundError as error:
            if not lazy.extra:
                raise
            what = f"{ctx.command_path} {cmd_name} needs the package {error.name}, which is not installed"
            raise CliError(what, f"pip install 'headrace[{lazy.extra}]'") from error
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        own = {name: command.get_short_help_str(formatter.width) for name, command in self.commands.items()}
        sections = {"Commands": {**own, **{name: lazy.summary for name, lazy in self.lazy.items()}}}
        for name, lazy in self._joined().items():
            sections.setdefault(f"Commands of headrace[{lazy.extra}]", {})[name] = lazy.summary
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(list(rows.items()))

    def _joined(self) -> dict[str, Lazy]:
        """Returns the commands that other packages add to this group; a name with a space belongs to a subgroup."""
        names = {name.removeprefix(self.prefix): name for name in joined_commands() if name.startswith(self.prefix)}
        return {name: joined_commands()[full] for name, full in names.items() if " " not in name}


class MainGroup(JoinedGroup):
    """The top command group. It turns a `CliError` into a message and an exit code."""

    lazy = COMMANDS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CliError as error:
            say(f"error: {error.message}", err=True)
            if error.hint:
                say(f"  hint: {error.hint}", err=True)
            ctx.exit(error.exit_code)
        except click.ClickException as error:  # click prints it
            vars(error)["message"] = clean(error.message)  # final for a type checker
            raise
        except KeyboardInterrupt:
            say("interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)


@click.group(cls=MainGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace")
@click.option("--url", envvar="HEADRACE_URL", default=DEFAULT_URL, show_default=True, help="The server.")
@click.option("--key", envvar="HEADRACE_API_KEY", help="API key; better set in HEADRACE_API_KEY.")
def main(url: str, key: str | None) -> None:
    """Durable streams over HTTP: create, append, read, follow.

    NAME is the name of a stream, with any characters in it, or the full URL of a stream.
    """


if __name__ == "__main__":
    main()
