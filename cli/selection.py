"""What `headrace read` and `headrace tail` show of a stream: which records, and what of each."""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from cli.client import Client
from cli.elements import object_members
from cli.errors import BadInput, CliError
from cli.offsets import back
from cli.options import Target
from cli.output import LINE_BREAKS
from cli.pages import catch_up, elements

FIELDS = ("offset", "time", "key", "value")
LOOK_BACK_RECORDS = 1_000_000
"""How many records are looked at, from the end, for the last that a filter or a key selects."""
_FIRST_LOOK_RECORDS = 1000
_GROWTH = 8
_SPACES = bytes.maketrans(b"\r\n\t", b"   ")


@dataclass(frozen=True)
class Selection:
    """Which records are shown, and what of each.

    Attributes:
        last: only so many, the last ones.
        filter, key: only records that a filter accepts, or that have a routing key.
        fields: what is shown of a record; none: its data alone.
    """

    last: int | None = None
    filter: str | None = None
    key: str | None = None
    fields: tuple[str, ...] = ()

    @property
    def params(self) -> dict[str, str]:
        """What a read asks the server for."""
        asked = {"filter": self.filter, "key": self.key, "format": "records" if self.fields else None}
        return {name: value for name, value in asked.items() if value is not None}

    @property
    def selects(self) -> bool:
        """Whether only some of the records at a place are shown."""
        return self.filter is not None or self.key is not None


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds -n, --filter, --routing-key and --fields to a command, and passes them as one `selection` argument."""

    @click.option(
        "-n",
        "--last",
        metavar="N",
        type=click.IntRange(min=1),
        help="Begin with the last N records, of those that --filter and --routing-key select.",
    )
    @click.option(
        "--filter",
        "text",
        metavar="QUERY",
        help="Only records that match, such as 'status:open total:>=100', by the search fields of the schema.",
    )
    @click.option("--routing-key", metavar="KEY", help="Only records with this routing key.")
    @click.option(
        "--fields",
        metavar="FIELD,…",
        help=f"Show these of each record, with tabs between: {', '.join(FIELDS)}. --from OFFSET goes on after it.",
    )
    @wraps(command)
    def with_selection(
        *args: Any, last: int | None, text: str | None, routing_key: str | None, fields: str | None, **kwargs: Any
    ) -> Any:
        names = tuple(name.strip() for name in fields.split(",")) if fields is not None else ()
        if unknown := [name for name in names if name not in FIELDS]:
            raise BadInput(f"--fields: no field {unknown[0]!r}", f"fields are {', '.join(FIELDS)}")
        return command(*args, selection=Selection(last, text, routing_key, names), **kwargs)

    return with_selection


def start_of_last(selection: Selection, headers: Mapping[str, str]) -> str:
    """Returns the offset `selection.last` records before the end of the stream that `headers` describe.

    Raises:
        CliError: the server's offsets do not count records.
    """
    assert selection.last is not None
    return _back(headers, selection.last)


def find_last(
    client: Client, target: Target, headers: Mapping[str, str], selection: Selection
) -> tuple[list[bytes], str, str]:
    """Finds the last of the selected records, in ever longer stretches before the end.

    Returns:
        At most `selection.last` of them; the offset behind what was looked at; and a warning, if there may be more
        further back than this looks.
    """
    width = _FIRST_LOOK_RECORDS
    beginning = _back(headers, 2**64)
    while True:
        start = offset = _back(headers, width)
        found: deque[bytes] = deque(maxlen=selection.last)
        for page in catch_up(client, target, start, None, selection.params):
            found.extend(elements(page.body))
            offset = page.next_offset
        if len(found) == selection.last or start == beginning:
            return list(found), offset, ""
        if width == LOOK_BACK_RECORDS:
            warning = f"only the last {width:,} records were looked at; `headrace search` finds older ones"
            return list(found), offset, warning
        width = min(width * _GROWTH, LOOK_BACK_RECORDS)


def _back(headers: Mapping[str, str], count: int) -> str:
    start = back(headers.get("stream-next-offset", ""), count, headers.get("stream-earliest-offset", ""))
    if start is None:
        raise CliError(
            "-n: the offsets of this server do not count records", "leave -n out, or give --from or --since"
        )
    return start


def as_row(fields: Sequence[str], described: bytes) -> bytes:
    """Returns fields of a record that the server describes, with tabs between. Line breaks are spaces, and so are tabs in
    a key; no key is empty.
    """
    members = object_members(described.decode())
    return b"\t".join(_text(members, field) for field in fields)


def as_object(fields: Sequence[str], described: bytes) -> bytes:
    """Returns fields of a record that the server describes, as a JSON object. Data that is not JSON is base64."""
    members = object_members(described.decode())
    given = [name if name in members else "base64" for name in fields]
    return ("{" + ",".join(f'"{name}":{members[name]}' for name in given) + "}").encode()


def _text(members: Mapping[str, str], field: str) -> bytes:
    if field == "value":
        if "value" in members:
            return members["value"].encode().translate(LINE_BREAKS)
        return base64.b64decode(json.loads(members["base64"])).translate(LINE_BREAKS)
    return (json.loads(members[field]) or "").encode().translate(_SPACES)
