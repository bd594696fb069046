"""The profile of streams that name none: records have no meaning to the server."""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.streams.profiles import strict
from headrace.streams.profiles.profile import Profile


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
