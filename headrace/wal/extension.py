"""What a surface keeps in the state of its logs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from headrace import decoding

if TYPE_CHECKING:  # it has the state of which an extension is part
    from headrace.wal.state import LogConfig, LogState


class Extension:
    """The part of a log's state that belongs to its surface: a tagged struct, whose members only that surface knows.

    A surface derives a struct from this class, with `tag_field="kind"` and a `tag` of its own. Once that struct is
    imported, `decode_extension` finds it.
    """

    __slots__ = ()

    @classmethod
    def begin(cls, config: LogConfig, state: LogState) -> LogState:  # noqa: ARG003 - others add something
        """Returns the state in which a log begins of which nothing is left but its configuration; `state` itself if the
        log is not of this surface, or begins without an extension.
        """
        return state

    @property
    def is_final(self) -> bool:
        """Whether no record will ever follow."""
        return False

    @property
    def counted(self) -> tuple[tuple[str, int], ...]:
        """Returns for what the log counts in counters, beside its name, and how much: that is freed when it ends."""
        return ()

    @property
    def removes_records(self) -> bool:
        """Whether single records of the log can be removed, so that nothing may be left of them."""
        return False

    def retained(self, state: LogState, now_ms: int) -> LogState:  # noqa: ARG002 - others keep less
        """Returns the log's state without the records that it keeps no longer, as of `now_ms`: with a higher floor, or
        `state` itself. Needs no read.
        """
        return state

    def named_objects(self, log_id: str) -> tuple[str, ...]:  # noqa: ARG002 - others name some
        """Returns the keys of the surface's own objects that the state of this log names; they are kept while an entry or
        one of the last two manifests names them.

        Their numbers (`headrace.objects.keys.numbered`) rise: an object that is named for the first time has a higher
        number than all of its kind that a state of the log named before.
        """
        return ()

    def named_pages(self, key: str, data: bytes) -> tuple[str, ...]:  # noqa: ARG002 - others have some
        """Returns the keys of the pages that one of those objects names. Objects that follow each other share pages: a
        page has the number of the first one that names it, and later ones name it until one does not.
        """
        return ()


class ForeignExtension(dict[str, Any], Extension):
    """The extension of a surface that this process has not imported. It is written back as it was read; what objects it
    names is not known, so that none of that log is removed as an orphan.
    """

    __slots__ = ()


def decode_extension(_: type, value: Any) -> Any:
    """Decodes an extension from a document; a decoding hook for msgspec. That of a surface which is not imported becomes a
    `ForeignExtension`.

    Raises:
        msgspec.ValidationError: the document is no extension, or has members that its surface does not know.
    """
    if not isinstance(value, dict):
        raise msgspec.ValidationError("extension is not an object")
    known = _known(value)
    if known is None:
        return ForeignExtension(value)
    if not _members(known).issuperset(value):
        raise msgspec.ValidationError("extension has members that are not known")
    return decoding.from_builtins(value, known)


def members_of(document: Mapping[str, Any]) -> frozenset[str]:
    """Returns the names of the members that the extension in a document can have; empty if its surface is not imported."""
    known = _known(document)
    return frozenset() if known is None else _members(known)


@cache
def _members(known: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset({"kind", *known.__struct_encode_fields__})


def _known(document: Mapping[str, Any]) -> type[msgspec.Struct] | None:
    for known in Extension.__subclasses__():
        if issubclass(known, msgspec.Struct) and known.__struct_config__.tag == document.get("kind"):
            return known
    return None


def begin(config: LogConfig, state: LogState) -> LogState:
    """Returns the state in which a log begins of which nothing is left but its configuration."""
    for known in Extension.__subclasses__():
        state = known.begin(config, state)
    return state
