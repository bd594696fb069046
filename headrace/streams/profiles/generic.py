"""The profile of every stream that names none: records mean nothing to the server."""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.streams.profiles import strict
from headrace.streams.profiles.profile import Profile


class Generic(Profile, frozen=True):
    """A plain stream. Switching to it leaves the schema registry that another profile installed."""

    kind: ClassVar[str] = "generic"

    @staticmethod
    def parse(options: dict[str, Any]) -> Generic:
        """Reads its document, which has no options.

        Raises:
            InvalidRequest: it has one.
        """
        strict.only(options, ("kind",), "profile")
        return Generic()
