"""Groups of commands that import a command's module only when that command runs.

Other packages join their commands through the entry point group `headrace.commands`: each entry point names a dict of
command name (`doctor`, or `index rebuild`) to module, attribute and summary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NamedTuple

import click

from cli.errors import CliError
from cli.help import FittingContext

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

ENTRY_POINTS = "headrace.commands"

SYNONYMS = (
    {"list", "ls", "streams"},
    {"delete", "remove", "rm", "revoke"},
    {"create", "add", "new", "put"},
    {"show", "info", "get", "describe"},
    {"read", "cat"},
    {"tail", "follow", "watch"},
    {"append", "push", "write", "produce"},
    {"set", "update", "configure", "register"},
)
"""Words that other tools have for the same command: each suggests those of its set that exist."""


class Lazy(NamedTuple):
    """A command that is imported only when it runs: its module and attribute, its line in the help, and the extra of
    the package `headrace` that it needs, if any.
    """

    target: str
    summary: str
    extra: str = ""


@cache
def joined_commands() -> Mapping[str, Lazy]:
    """Returns the commands that other packages add, by name."""
    return {
        name: Lazy(target, summary, point.name)
        for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
        for name, (target, summary) in point.load().items()
    }


class CommandGroup(click.Group):
    """A group of commands that lists and completes them without importing them, and suggests a command for a typo.

    Attributes:
        lazy: commands of the group by name, beside those that are added to it.
        prefix: what the names of commands that other packages add to this group begin with; None: they add none.
    """

    context_class = FittingContext
    lazy: Mapping[str, Lazy] = {}
    prefix: str | None = None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *self.lazy, *self._joined()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self.lazy.get(cmd_name) or self._joined().get(cmd_name)
        if lazy is None:
            command = super().get_command(ctx, cmd_name)
            if command is not None:
                command.context_class = FittingContext
            return command
        module_name, _, attribute = lazy.target.partition(":")
        try:
            command = getattr(import_module(module_name), attribute)
        except ModuleNotFoundError as error:
            if not lazy.extra:
                raise
            if ctx.resilient_parsing:  # a shell asks what could be typed here
                return None
            what = f"{ctx.command_path} {cmd_name} needs the package {error.name}, which is not installed"
            raise CliError(what, f"pip install 'headrace[{lazy.extra}]'") from error
        assert isinstance(command, click.Command)
        command.context_class = FittingContext
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            meant = suggestions(name, known)
            said = f" (Did you mean {' or '.join(map(repr, meant))}?)" if meant else ""
            ctx.fail(f"No such command {name!r}.{said}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        sections = {"Commands": self._own_summaries(formatter.width)}
        for name, lazy in self._joined().items():
            sections.setdefault(f"Commands of headrace[{lazy.extra}]", {})[name] = lazy.summary
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(list(rows.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        summaries = self._own_summaries(80) | {name: lazy.summary for name, lazy in self._joined().items()}
        commands = [
            CompletionItem(name, help=summary) for name, summary in summaries.items() if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def _own_summaries(self, width: int) -> dict[str, str]:
        """Returns the line that a help of this width has for each command of the group itself."""
        added = {name: command.get_short_help_str(3 * width) for name, command in self.commands.items()}
        return added | {name: lazy.summary for name, lazy in self.lazy.items()}

    def _joined(self) -> dict[str, Lazy]:
        """Returns the commands that other packages add to this group; a name with a space belongs to a subgroup."""
        if self.prefix is None:
            return {}
        names = {name.removeprefix(self.prefix): name for name in joined_commands() if name.startswith(self.prefix)}
        return {name: joined_commands()[full] for name, full in names.items() if " " not in name}


def suggestions(name: str, known: Collection[str]) -> list[str]:
    """Returns the known commands that somebody who typed `name` may have meant: spelled alike, or another word for it."""
    from difflib import get_close_matches

    other_words = set().union(*(words for words in SYNONYMS if name in words))
    close = get_close_matches(name, known)
    return close + [command for command in known if command in other_words and command not in close]
