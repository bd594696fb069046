"""What every profile is: the semantics of a stream's records, behind one interface.

The core never asks which profile it has. It calls these methods and looks at these attributes; the base class is the
profile that adds nothing, and each kind overrides what it does differently.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from headrace.errors import InvalidRequest
from headrace.streams.profiles.touch.config import TouchConfig

JSON = "application/json"


class Profile(msgspec.Struct, frozen=True):
    """A profile with its options.

    Attributes:
        kind: its name in the profile document.
        reads_records: `normalize` must see every appended record; if not, appends need not be parsed for it.
        needs_json: it can only be installed on a stream of `application/json`.
        needs_empty: it can only be installed before the first record.
        families: search index families that it adds to those of the search configuration.
    """

    kind: ClassVar[str]
    reads_records: ClassVar[bool] = False
    needs_json: ClassVar[bool] = False
    needs_empty: ClassVar[bool] = False
    families: ClassVar[tuple[str, ...]] = ()

    @property
    def touch(self) -> TouchConfig | None:
        """The settings of the `/touch/*` routes; None: this stream has none, they answer 404."""
        return None

    def document(self) -> dict[str, Any]:
        """Returns the profile document with options normalised; parsing it gives an equal profile."""
        return {"kind": self.kind}

    def check_install(self, *, content_type: str, is_empty: bool, current: Profile) -> None:
        """Checks whether a stream may get this profile. Options of the same kind may change at any time.

        Args:
            content_type: the stream's, with or without parameters.
            is_empty: the stream has never had a record.
            current: what it has now.

        Raises:
            InvalidRequest: the content type is wrong, or it has records already.
        """
        base = content_type.split(";")[0].strip().lower()
        if self.needs_json and base != JSON:
            raise InvalidRequest(f"{self.kind} profile requires {JSON} stream content-type")
        if self.needs_empty and not is_empty and current.kind != self.kind:
            raise InvalidRequest(f"{self.kind} profile must be installed before appending data")

    def registry(self) -> dict[str, Any] | None:
        """Returns the schema update that a registry without a version starts with; None: the registry stays as it is."""
        return None

    def normalize(self, document: Any, now_ms: int) -> tuple[Any, str | None]:  # noqa: ARG002
        """Returns a record as it is to be stored, and the routing key it has unless the schema or the request gives
        one.

        Returns the very object given if it is to be stored as it came. Never changes the object given.

        Args:
            now_ms: what a record without a time of its own gets.

        Raises:
            InvalidRequest: the record is not one of this profile.
        """
        return document, None

    def observability(self, stream: str) -> dict[str, Any] | None:  # noqa: ARG002
        """Returns the descriptor of a declared pair of event and trace streams, for listings; None without one."""
        return None
