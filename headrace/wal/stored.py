"""Decodes the states of logs as they are stored.

A member that this release does not know was added by a later one, which runs beside it for a while. It is kept under
`later`, and so written back; a release that knows it takes it from there. So a later release may add a member that stays
true if a writer copies it; one that doesn't needs a new version of the items. This holds for the members of a state and
of its extension, not for those of their parts.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.wal.extension import decode_extension, members_of
from headrace.wal.state import LogState

_MEMBERS = frozenset(LogState.__struct_encode_fields__)
_decoder = msgspec.json.Decoder(LogState, dec_hook=decode_extension)


def decode_state(text: str) -> LogState:
    """Decodes a state from JSON.

    Raises:
        msgspec.ValidationError: the document is no state.
        msgspec.DecodeError: the text is not JSON.
    """
    try:
        state = _decoder.decode(text)
    except msgspec.ValidationError:  # perhaps only because of members that are not known
        state = None
    if state is not None and state.later is None:
        return state
    return _decoder.decode(msgspec.json.encode(with_later(msgspec.json.decode(text))))


def with_later(document: Any) -> Any:
    """Returns the document of a state in which the members that this release does not know are under `later`, and those
    that it knows are not; anything else unchanged.
    """
    if not isinstance(document, dict) or not isinstance(document.get("later", {}), dict):
        return document
    kept = document.get("later", {})
    found = {**kept, **document}
    found.pop("later", None)
    parts = [part for part in (kept.get("extension"), document.get("extension")) if isinstance(part, dict)]
    later = {name: value for name, value in found.items() if name not in _MEMBERS}
    if parts:
        extension = {name: value for part in parts for name, value in part.items()}
        known = members_of(extension)
        unknown = {name: value for name, value in extension.items() if known and name not in known}
        found["extension"] = {name: value for name, value in extension.items() if name not in unknown}
        if unknown:
            later["extension"] = {"kind": extension["kind"], **unknown}
    own = {name: value for name, value in found.items() if name in _MEMBERS}
    return {**own, "later": later} if later else own
