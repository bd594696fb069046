"""The profile `evlog`: one wide event per request, in a canonical envelope that is redacted before it is stored.

options   parses the profile document
envelope  converts an event of any shape to the canonical envelope
schema    the schema and search configuration of an evlog stream
"""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.streams.profiles.evlog import envelope, schema
from headrace.streams.profiles.evlog.options import Options, parse_options
from headrace.streams.profiles.profile import Profile


class Evlog(Profile, frozen=True):
    """The profile of events of requests. The routing key is the request id, or else the trace id."""

    kind: ClassVar[str] = "evlog"
    reads_records: ClassVar[bool] = True
    needs_json: ClassVar[bool] = True
    needs_empty: ClassVar[bool] = True

    options: Options = Options()

    @staticmethod
    def parse(document: dict[str, Any]) -> Evlog:
        """Parses the profile document.

        Raises:
            InvalidRequest: there is an unknown option, or one of the wrong form.
        """
        return Evlog(parse_options(document))

    def document(self) -> dict[str, Any]:
        """Returns the document with `redactKeys` in lower case."""
        return {"kind": self.kind, **self.options.document()}

    def registry(self) -> dict[str, Any]:
        """Returns the canonical schema with its search fields; the schema declares no routing key."""
        return schema.registry()

    def normalize(self, document: Any, now_ms: int) -> tuple[dict[str, Any], str | None]:
        """Converts an event to the canonical envelope. The routing key is the request id, or else the trace id.

        Raises:
            InvalidRequest: the record is not an object, or is nested too deeply.
        """
        event = envelope.normalize(document, self.options, now_ms)
        return event, event["requestId"] or event["traceId"]

    def observability(self, stream: str) -> dict[str, Any] | None:
        """Returns the names of this stream and of the trace stream that the options declare; None if they declare
        none.
        """
        traces = self.options.traces_stream
        return {"request": {"events_stream": stream, "traces_stream": traces}} if traces is not None else None
