"""The proof that comes before a lens is installed."""

from __future__ import annotations

from typing import Any

from headrace.errors import InvalidRequest
from headrace.json.lens.defaults import with_defaults
from headrace.json.lens.envelope import Lens, parse


def prove(lens: Lens, old_schema: dict[str, Any] | bool, new_schema: dict[str, Any] | bool) -> dict[str, Any]:
    """Shows that the lens turns every document of the old schema into one of the new schema.

    The operations are followed, in order, on a description of all documents that the old schema accepts; what comes
    out has to be within the new schema. An `add` or `remove` with a default must have one that fits its own `schema`.

    Returns:
        The lens's document, with a default from the new schema in every `add` that had none.

    Raises:
        InvalidRequest: a document might make an operation fail, or come out as one that the new schema refuses; or
            the schemas are too complex to tell. Names the operation and the path.
    """
    # Loads the schema library, which a process that only promotes does not need.
    from headrace.json.lens import verdict

    document = with_defaults(lens.document, lens.ops, new_schema)
    complete = parse(document, document["schema"], lens.from_version)
    try:
        verdict.check_defaults(complete.ops)
        verdict.check(complete.ops, old_schema, new_schema)
    except InvalidRequest as exc:
        raise InvalidRequest(f"lens not proven: {exc}") from exc
    return document
