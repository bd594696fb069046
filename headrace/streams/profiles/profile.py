"""The interface of profiles, which define what a stream's records mean.

The core never checks which kind of profile it has; it only uses these methods and attributes. The base class adds
nothing to plain records, and each kind overrides what it does differently.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from headrace.errors import InvalidRequest
from headrace.streams.profiles import strict
from headrace.streams.profiles.touch.config import TouchConfig

JSON = "application/json"


class Profile(msgspec.Struct, frozen=True):
    """A profile with its options.

    Attributes:
        kind: its name in the profile document.
        reads_records: whether `normalize` must see every appended record; if not, appends need not be parsed for it.
        needs_json: whether it can only be installed on a stream of `application/json`.
        needs_empty: whether it can only be installed before the first record.
        families: index families that it needs in addition to those of the search configuration.
    """

    kind: ClassVar[str]
    reads_records: ClassVar[bool] = False
    needs_json: ClassVar[bool] = False
    needs_empty: ClassVar[bool] = False

    @property
    def families(self) -> tuple[str, ...]:
        """Index families that the profile needs in addition to those of the search configuration."""
        return ()

    @property
    def touch(self) -> TouchConfig | None:
        """The settings of the `/touch/*` routes; None if the stream has no such routes, so that they answer 404."""
        return None

    def document(self) -> dict[str, Any]:
        """Returns the profile document with options normalised; parsing it gives an equal profile."""
        return {"kind": self.kind}

    def check_install(self, *, content_type: str, is_empty: bool, current: Profile) -> None:
        """Checks that a stream may get this profile. Options of the same kind may change at any time.

        Args:
            content_type: the stream's content type, with or without parameters.
            is_empty: whether the stream has never had a record.
            current: the stream's current profile.

        Raises:
            InvalidRequest: the content type is wrong, or the stream has records already.
        """
        base = content_type.split(";")[0].strip().lower()
        if self.needs_json and base != JSON:
            raise InvalidRequest(f"{self.kind} profile requires {JSON} stream content-type")
        if self.needs_empty and not is_empty and current.kind != self.kind:
            raise InvalidRequest(f"{self.kind} profile must be installed before appending data")

    def registry(self) -> dict[str, Any] | None:
        """Returns the schema update with which an empty registry starts; None if the registry stays as it is."""
        return None

    def normalize(self, document: Any, now_ms: int) -> tuple[Any, str | None]:  # noqa: ARG002
        """Returns a record as it is to be stored, and its routing key, which is used unless the schema or the request
        gives one.

        Returns the given object itself if it needs no change, and never changes it.

        Args:
            now_ms: the time for a record that has none.

        Raises:
            InvalidRequest: the record is not one of this profile.
        """
        return document, None

    def observability(self, stream: str) -> dict[str, Any] | None:  # noqa: ARG002
        """Returns the description of a declared pair of event and trace streams, for listings; None if none is
        declared.
        """
        return None


class Generic(Profile, frozen=True):
    """The profile of a plain stream. Switching to it keeps the schema registry that another profile installed."""

    kind: ClassVar[str] = "generic"

    @staticmethod
    def parse(options: dict[str, Any]) -> Generic:
        """Parses the profile document, which has no options.

        Raises:
            InvalidRequest: the document has an option.
        """
        strict.only(options, ("kind",), "profile")
        return Generic()


# Search fields of profiles: all have version 1, and each is bound to one JSON pointer.

TYPED = ("exact", "column", "exists", "sortable")


def keyword(pointer: str, *capabilities: str, lowercase: bool = False) -> dict[str, Any]:
    """Returns the configuration of a keyword search field with `exact`, `exists` and the named capabilities."""
    normalizer = {"normalizer": "lowercase_v1"} if lowercase else {}
    return _field("keyword", pointer, normalizer, ("exact", *capabilities, "exists"))


def text(pointer: str) -> dict[str, Any]:
    """Returns the configuration of a full-text search field, indexed with the positions of its words."""
    return _field("text", pointer, {"analyzer": "unicode_word_v1"}, ("exists", "positions"))


def typed(kind: str, pointer: str, *capabilities: str) -> dict[str, Any]:
    """Returns the configuration of a search field of a `kind` (date, integer or float) with `exact`, `column`, `exists`,
    `sortable` and the named capabilities.
    """
    return _field(kind, pointer, {}, (*TYPED, *capabilities))


def _field(kind: str, pointer: str, settings: dict[str, str], capabilities: tuple[str, ...]) -> dict[str, Any]:
    bindings = [{"version": 1, "jsonPointer": pointer}]
    return {"kind": kind, "bindings": bindings, **settings, **dict.fromkeys(capabilities, True)}
