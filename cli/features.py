"""Requests about feature tables, their options, and what a registration changes in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click
import httpx

from cli.client import Client
from cli.documents import document
from cli.errors import BadInput
from cli.options import Connection, base_url, connection_options, json_bytes, segment

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True)
class Tables:
    """The feature tables of a namespace: how to reach them, and what to call the namespace."""

    client: Client
    url: str
    namespace: str

    def call(
        self,
        method: str,
        path: str,
        what: str,
        *,
        body: object | bytes = None,
        expect: tuple[int, ...] = (),
        is_safe: bool = True,
    ) -> httpx.Response:
        """Sends a request and returns the answer. `body` is a value, or JSON text; `is_safe` is as of `Client.send`. Raises
        `Refused` or `Unreachable`, which name `what`.
        """
        content = body if isinstance(body, bytes) or body is None else json_bytes(body)
        headers = {} if content is None else {"content-type": "application/json"}
        url = f"{self.url}/{path}"
        return self.client.send(
            method, url, what=what, headers=headers, content=content, expect=expect, is_safe=is_safe
        )

    def registry(self) -> dict[str, Any]:
        """Returns what is registered. Raises `Refused` if the key may not read it."""
        what = f"look at the namespace {self.namespace}"
        return document(self.call("GET", "registry", what), what)


def tables_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a connection and of a namespace to a command, and passes them as one `tables` argument."""

    @click.option(
        "-n",
        "--namespace",
        envvar="HEADRACE_NAMESPACE",
        default=DEFAULT_NAMESPACE,
        show_default=True,
        help="The namespace; else HEADRACE_NAMESPACE.",
    )
    @connection_options
    @wraps(command)
    def with_tables(*args: Any, connection: Connection, namespace: str, **kwargs: Any) -> Any:
        if not namespace:
            raise BadInput("a namespace can't be empty")
        root = base_url(connection.url)
        url = root if namespace == DEFAULT_NAMESPACE else f"{root}/features/{segment(namespace)}"
        return command(*args, tables=Tables(connection.client(), url, namespace), **kwargs)

    return with_tables


def nodes_of(content: Any, source: str) -> list[Any]:
    """Returns the nodes in a parsed file: an object with the list `nodes`, a list of nodes, or one node. Raises BadInput if
    it is something else.
    """
    if isinstance(content, list):
        return content
    if isinstance(content, dict) and isinstance(content.get("nodes"), list):
        return list(content["nodes"])
    if isinstance(content, dict) and "kind" in content:
        return [content]
    raise BadInput(f"{source} has no nodes", 'it must be {"nodes": [...]}, a list of nodes, or one node')


def diff_lines(diff: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a registration changes, one line for each change: `+` adds, `-` drops state."""
    for sign, kind in (("+", "additive"), ("-", "destructive")):
        for entry in diff.get(kind) or ():
            yield f"{sign} {_described(entry)}" if isinstance(entry, dict) else f"{sign} {entry}"


def _described(entry: Mapping[str, Any]) -> str:
    """Returns a change in words; one of a kind that this client does not know as it was sent."""
    try:
        return _SENTENCES[str(entry.get("kind"))](entry)
    except KeyError:
        rest = "  ".join(f"{name}={json_bytes(value).decode()}" for name, value in entry.items() if name != "kind")
        return f"{entry.get('kind')}  {rest}".rstrip()


def _step(entry: Mapping[str, Any]) -> str:
    return f"step {int(entry['index']) + 1} of {entry['descriptor']}"


_SENTENCES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "new_descriptor": lambda entry: f"{entry.get('descriptor_kind', 'node')} {entry['name']}",
    "new_field": lambda entry: f"field {entry['event']}.{entry['field']}: {entry['type']}",
    "optional_field": lambda entry: f"field {entry['event']}.{entry['field']} becomes optional",
    "setting_change": lambda entry: f"{entry['setting']} of {entry['event']}: {_change(entry)}",
    "new_agg": lambda entry: f"feature {entry['table']}.{entry['agg']}",
    "agg_removal": lambda entry: f"feature {entry['table']}.{entry['agg']} is removed",
    "window_change": lambda entry: f"window of {entry['agg']}: {_change(entry)}",
    "type_change": lambda entry: f"{entry['field']}: {_change(entry)}",
    "key_cols_change": lambda entry: f"key of {entry['table']}: {_change(entry)}",
    "rename": lambda entry: f"{entry['from']} becomes {entry['to']}",
    "op_removal": lambda entry: f"{_step(entry)} is removed: {entry['op']}",
    "op_insertion": lambda entry: f"{_step(entry)} is new: {entry['op']}",
    "op_change": lambda entry: f"{_step(entry)}: {_change(entry)}",
}


def _change(entry: Mapping[str, Any]) -> str:
    return f"{_short(entry['from'])} -> {_short(entry['to'])}"


def _short(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "(global)"
    return value if isinstance(value, str) else json_bytes(value).decode()
