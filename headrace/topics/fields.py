"""The search configuration of a topic: tag, node and time of each record are fields, and fields of the data by choice."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from headrace.definition import COLUMN_FIELDS, Definition
from headrace.errors import InvalidRequest
from headrace.json import search_config
from headrace.log.logs import Change
from headrace.query.language.canonical import COLUMNS
from headrace.wal.state import LogConfig, LogState

_BUILT_IN: dict[str, Any] = msgspec.to_builtins(COLUMN_FIELDS)


def change_to(asked: Any) -> Change:
    """Returns the change of a topic's definition to a search configuration: the body of a stream's, in which fields may be
    missing. The primary timestamp is `ts`, unless it names another field.

    Raises:
        InvalidRequest: it is no search configuration, or has a field of a name that is built in.
    """
    if not isinstance(asked, dict) or not isinstance(asked.get("fields", {}), dict):
        raise InvalidRequest("search configuration must be an object, and its fields, too")
    own = asked.get("fields", {})
    taken = sorted(own.keys() & COLUMN_FIELDS.keys())
    if taken:
        raise InvalidRequest(f"/search/fields/{taken[0]}: is built in")
    wanted = {"primaryTimestampField": "ts", **asked, "fields": {**_BUILT_IN, **own}}
    config = search_config.parse(wanted, 1, columns=True)
    for name in own:
        if any(binding.json_pointer in COLUMNS for binding in config.fields[name].bindings):
            raise InvalidRequest(f"/search/fields/{name}/bindings: a field can't be bound to a column")
    document = config.document()

    def change(before: Definition, _: LogConfig, __: LogState) -> Definition:
        return Definition(replace(before.registry, search=document), before.own)

    return change


def shown(definition: Definition) -> dict[str, Any]:
    """Returns a topic's search configuration as a document, with the fields that are built in."""
    return dict(definition.registry.search or {})
