"""The profile `state_protocol`: changes of tables and control messages, stored unchanged. With `touch`, requests can
wait for a change.

records   checks the form of a record
"""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.streams.profiles import strict
from headrace.streams.profiles.profile import Profile
from headrace.streams.profiles.state_protocol import records
from headrace.streams.profiles.touch.config import TouchConfig, parse_config


class StateProtocol(Profile, frozen=True):
    """The profile of records of the State Protocol. A schema is optional, and the user provides it.

    It may be installed on a stream with records: earlier records that are no changes touch nothing.

    Attributes:
        config: the touch settings of the document; None if it has none.
    """

    kind: ClassVar[str] = "state-protocol"
    reads_records: ClassVar[bool] = True
    needs_json: ClassVar[bool] = True

    config: TouchConfig | None = None

    @staticmethod
    def parse(document: dict[str, Any]) -> StateProtocol:
        """Parses the profile document.

        Raises:
            InvalidRequest: there is an unknown option, or touch settings of the wrong form.
        """
        strict.only(document, ("kind", "touch"), "profile")
        return StateProtocol(parse_config(document["touch"]) if "touch" in document else None)

    @property
    def touch(self) -> TouchConfig | None:
        """The touch settings, if they are enabled."""
        return self.config if self.config is not None and self.config.enabled else None

    def document(self) -> dict[str, Any]:
        """Returns the document with every touch setting filled in."""
        return {"kind": self.kind, **({} if self.config is None else {"touch": self.config.document()})}

    def normalize(self, document: Any, now_ms: int) -> tuple[Any, str | None]:  # noqa: ARG002
        """Checks the record and returns it unchanged, without a routing key.

        Raises:
            InvalidRequest: the record is neither a change nor a control message.
        """
        records.check(document)
        return document, None
