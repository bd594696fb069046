"""Saved servers and their keys (contexts), and the choice of the server and key that a command uses.

The file is `contexts.json` in the folder `headrace` of the user's configuration, on Linux below `$XDG_CONFIG_HOME` or
`~/.config`. Only its owner can read it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import click
from click.core import ParameterSource

from cli.errors import BadInput

DEFAULT_URL = "http://127.0.0.1:8787"


class Saved(NamedTuple):
    """A server, and its key if it needs one."""

    url: str
    key: str | None = None


@dataclass
class Contexts:
    """The saved servers by name, and the name of the one in use; None if there is none."""

    saved: dict[str, Saved] = field(default_factory=dict)
    current: str | None = None

    def get(self, name: str) -> Saved:
        """Returns a context. Raises BadInput if there is none with this name."""
        if name not in self.saved:
            known = ", ".join(sorted(self.saved))
            hint = f"saved: {known}" if known else "`headrace context add NAME --url URL` saves one"
            raise BadInput(f"no such context: {name}", hint)
        return self.saved[name]

    def write(self) -> None:
        """Replaces the file. Raises BadInput if it can't be written."""
        document = {
            "current": self.current,
            "contexts": {name: saved._asdict() for name, saved in sorted(self.saved.items())},
        }
        path = contexts_path()
        scratch = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(json.dumps(document, indent=2) + "\n")
            scratch.replace(path)
        except OSError as error:
            raise BadInput(f"can't write {path}: {error.strerror}") from error


def contexts_path() -> Path:
    """Returns the path of the file."""
    return Path(click.get_app_dir("headrace")) / "contexts.json"


def read_contexts() -> Contexts:
    """Reads the file; without one there are no contexts. Raises BadInput if it can't be read, or is malformed."""
    path = contexts_path()
    try:
        document = json.loads(path.read_bytes())
        saved = {
            str(name): Saved(str(given["url"]), given.get("key")) for name, given in document["contexts"].items()
        }
        return Contexts(saved, document.get("current"))
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise BadInput(f"can't read {path}: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"not a file of contexts: {path}", "repair it, or move it away and add them again") from error


def context_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Returns the names that begin so, for a shell that completes a command line."""
    try:
        return [name for name in sorted(read_contexts().saved) if name.startswith(incomplete)]
    except BadInput:
        return []


class Choice(NamedTuple):
    """The server and key that a command uses, and where each was found.

    Attributes:
        context: the name of the context in use, whether or not something overrides it; None if there is none.
        url_source, key_source: as people know it, such as `--url` or `HEADRACE_URL`; `key_source` is empty without a key.
        is_chosen: whether the command line or the environment named the server, itself or by its context.
        only_for: the server to which the key may be sent; None: to any that the command line names.
    """

    url: str
    url_source: str
    is_chosen: bool
    key: str | None
    key_source: str
    context: str | None
    only_for: str | None

    def key_for(self, url: str) -> str | None:
        """Returns the key to send to this URL. A saved key is sent to the server it was saved for, and to no other."""
        return self.key if self.only_for is None or _origin(url) == _origin(self.only_for) else None


class _Source(NamedTuple):
    """A place where a server, a key or both may be named."""

    url: str | None
    url_name: str
    key: str | None
    key_name: str
    is_chosen: bool = True
    is_saved: bool = False


def choose(url: str | None = None, key: str | None = None, context: str | None = None) -> Choice:
    """Returns what the running command uses, given its own options, in this order: options of the command, options of
    `headrace`, the context that an option names, the environment, the context that the environment names, the context in
    use.

    The server and the key are looked for separately; a saved key counts only for the server that it was saved for.

    Raises:
        BadInput: there is no such context, or the file of contexts is malformed.
    """
    root = click.get_current_context().find_root()
    given = root.params

    def of_root(name: str, source: ParameterSource) -> str | None:
        return given.get(name) if root.get_parameter_source(name) is source else None

    line, environment = ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT
    contexts = read_contexts()
    by_option = context or of_root("context", line)
    by_environment = of_root("context", environment)

    def saved(name: str | None, label: str, *, is_chosen: bool) -> list[_Source]:
        if name is None:
            return []
        found = contexts.get(name)
        return [_Source(found.url, label, found.key, label, is_chosen, is_saved=True)]

    sources = [
        _Source(url, "--url", key, "--key"),
        _Source(of_root("url", line), "--url", of_root("key", line), "--key"),
        *saved(by_option, f"context {by_option}", is_chosen=True),
        _Source(of_root("url", environment), "HEADRACE_URL", of_root("key", environment), "HEADRACE_API_KEY"),
    ]
    current = by_environment or contexts.current
    if by_option is None:
        sources += saved(current, f"context {current}", is_chosen=by_environment is not None)
    server = next(
        (source for source in sources if source.url), _Source(DEFAULT_URL, "default", None, "", is_chosen=False)
    )
    assert server.url is not None
    origin = _origin(server.url)
    keys = (one for one in sources if one.key and not (one.is_saved and _origin(one.url or "") != origin))
    keyed = next(keys, None)
    return Choice(
        url=server.url,
        url_source=server.url_name,
        is_chosen=server.is_chosen,
        key=keyed.key if keyed else None,
        key_source=keyed.key_name if keyed else "",
        context=by_option or current,
        only_for=keyed.url if keyed and keyed.is_saved else None,
    )


def _origin(url: str) -> tuple[str, str]:
    parts: Any = urlsplit(url.lower())
    return parts.scheme, parts.netloc
