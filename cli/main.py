"""The command `headrace`: its commands, and the options that all of them share."""

from __future__ import annotations

import errno
from typing import Any

import click

from cli.contexts import DEFAULT_URL, context_names
from cli.errors import EXIT_INTERRUPTED, EXIT_REFUSED, EXIT_USAGE, CliError
from cli.groups import CommandGroup, Lazy
from cli.signals import ARGUMENTS
from cli.terminal import clean, say

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
    "schema": Lazy("cli.commands.schema:command", "Schemas, lenses and search fields of a JSON stream."),
    "profile": Lazy("cli.commands.profile:command", "What the records of a stream mean."),
    "topic": Lazy("cli.commands.topic:command", "Topics: logs with tags, time limits and caps."),
    "queue": Lazy("cli.commands.queue:command", "Queues of jobs, and workers for them."),
    "router": Lazy("cli.commands.router:command", "Rules that copy records from topic to topic."),
    "watch": Lazy("cli.commands.watch:command", "Follow many topics over one connection."),
    "features": Lazy("cli.commands.features:command", "Feature tables: register, push events, read features."),
    "work": Lazy("cli.commands.work:command", "Run a command for what is appended to streams, shared by workers."),
    "subscription": Lazy("cli.commands.subscription:command", "Subscriptions: wake a worker or a webhook."),
    "ping": Lazy("cli.commands.ping:command", "Measure how soon a server answers, and say its version."),
    "bench": Lazy("cli.commands.bench:command", "Put a small load on a server, and say how it did."),
    "context": Lazy("cli.commands.context:command", "Save servers and keys, and choose one to use."),
    "index": Lazy("cli.commands.index:command", "Show the indexes of streams, wait for them, or rebuild them."),
}

EPILOG = """\b
Examples:
  headrace dev                                 # in one terminal
  headrace create orders                       # in another
  headrace append orders --data '{"id": 1}'
  headrace append orders --file orders.jsonl
  headrace read orders --format lines
  headrace tail orders
  headrace search orders 'status:open'         # with search fields in its schema

\b
Server and key, before or after the command's name:
  --url or HEADRACE_URL          by default http://127.0.0.1:8787
  --key or HEADRACE_API_KEY      sent as a bearer token
  --context or HEADRACE_CONTEXT  both, as saved by `headrace context add`

\b
Exit codes:
  0  done
  1  the server refused, or the output could not be written
  2  the command line or its input is wrong
  3  the server could not be reached, or stopped answering
  130  stopped by Ctrl-C or a signal
"""


class MainGroup(CommandGroup):
    """The top command group. It turns a `CliError` into a message and an exit code."""

    lazy = COMMANDS
    prefix = ""

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
        except UnicodeEncodeError as error:
            if error.reason != "surrogates not allowed":  # which stand for bytes of an argument that are not UTF-8
                raise
            say("error: an argument, or a variable HEADRACE_…, is not UTF-8", err=True)
            ctx.exit(EXIT_USAGE)
        except OSError as error:  # such as a full disk
            if error.errno == errno.EPIPE:  # the reader of the output has gone: click ends the command
                raise
            where = f": {error.filename}" if error.filename else ""
            say(f"error: {error.strerror or error}{where}", err=True)
            ctx.exit(EXIT_REFUSED)
        except KeyboardInterrupt:
            say("interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)


@click.group(cls=MainGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace")
@click.option("--url", envvar="HEADRACE_URL", help=f"The server.  [default: {DEFAULT_URL}]")
@click.option("--key", envvar="HEADRACE_API_KEY", help="API key; better set in HEADRACE_API_KEY.")
@click.option(
    "--context",
    envvar="HEADRACE_CONTEXT",
    metavar="NAME",
    shell_complete=context_names,
    help="A server and key saved by `headrace context add`.",
)
def main(url: str | None, key: str | None, context: str | None) -> None:
    """Durable streams over HTTP: create, append, read, follow.

    NAME is the name of a stream, with any characters in it, or the full URL of a stream.
    """


if __name__ == "__main__":
    main()
