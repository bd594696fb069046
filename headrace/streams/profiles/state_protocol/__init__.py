"""Changes of tables and their control messages, stored as given; with `touch`, anyone who waits for a change is woken.

records   what a record may look like
"""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.streams.profiles import strict
from headrace.streams.profiles.profile import Profile
from headrace.streams.profiles.state_protocol import records
from headrace.streams.profiles.touch.config import TouchConfig, parse_config


class StateProtocol(Profile, frozen=True):
    """Records of the State Protocol. A schema is optional and the user's own.

    It may be installed after data: earlier records that are no changes touch nothing.

    Attributes:
        config: the touch settings as given; None if the document has none.
    """

    kind: ClassVar[str] = "state-protocol"
    reads_records: ClassVar[bool] = True
    needs_json: ClassVar[bool] = True

    config: TouchConfig | None = None

    @staticmethod
    def parse(document: dict[str, Any]) -> StateProtocol:
        """Reads its document.

        Raises:
            InvalidRequest: an unknown option, or touch settings of the wrong form.
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
        """Returns the record itself, without a key.

        Raises:
            InvalidRequest: neither a change nor a control message.
        """
        records.check(document)
        return document, None
