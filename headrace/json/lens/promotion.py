"""Old records as the current version has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.errors import InvalidRequest
from headrace.json.lens.envelope import Lens
from headrace.json.lens.growth import can_be_large, exceeds

MAX_CHARS = 64 * 1024 * 1024  # of a promoted record as JSON; a record as written has 10 MiB at most


def promote(lenses: Sequence[Lens], document: Any) -> Any:
    """The document after a chain of lenses. It is not changed itself.

    The result may share parts with the document and with the lenses: it is to be read, not to be changed.

    Numbers that no operation touches are kept as they are, and so is the order of keys; a key that is set anew goes
    to the end of its object.

    Args:
        lenses: from the version under which the document was written, up to the current one.

    Raises:
        InvalidRequest: an operation fails, which no document does that was accepted by the schema of the lens's proof;
            or the result is longer than `MAX_CHARS` or deeper than `growth.MAX_LEVELS`.
    """
    for lens in lenses:
        for number, step in enumerate(lens.steps):
            try:
                document = step(document)
            except InvalidRequest as exc:
                where = f"lens {lens.from_version}->{lens.to_version} /ops/{number}"
                raise InvalidRequest(f"{where} failed: {exc}") from exc
    if can_be_large(lens.growth for lens in lenses) and exceeds(document, MAX_CHARS):
        raise InvalidRequest(f"lenses make the record too long or too deep: limit_chars={MAX_CHARS}")
    return document
