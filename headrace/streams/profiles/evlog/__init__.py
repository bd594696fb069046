"""One wide event per request: a canonical envelope, redacted before it is stored.

options   what the profile document may say
envelope  an event in any shape to the canonical one
schema    the schema and search registry that come with it
"""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.streams.profiles.evlog import envelope, schema
from headrace.streams.profiles.evlog.options import Options, parse_options
from headrace.streams.profiles.profile import Profile


class Evlog(Profile, frozen=True):
    """Events of requests, found by request id or else by trace id."""

    kind: ClassVar[str] = "evlog"
    reads_records: ClassVar[bool] = True
    needs_json: ClassVar[bool] = True
    needs_empty: ClassVar[bool] = True

    options: Options = Options()

    @staticmethod
    def parse(document: dict[str, Any]) -> Evlog:
        """Reads its document.

        Raises:
            InvalidRequest: an unknown option, or one of the wrong form.
        """
        return Evlog(parse_options(document))

    def document(self) -> dict[str, Any]:
        """Returns the document with `redactKeys` in lower case."""
        return {"kind": self.kind, **self.options.document()}

    def registry(self) -> dict[str, Any]:
        """Returns the canonical schema with its search fields; no routing key of the schema's own."""
        return schema.registry()

    def normalize(self, document: Any, now_ms: int) -> tuple[dict[str, Any], str | None]:
        """Returns the canonical envelope; the key is the request id, or else the trace id.

        Raises:
            InvalidRequest: not an object, or nested too deeply.
        """
        event = envelope.normalize(document, self.options, now_ms)
        return event, event["requestId"] or event["traceId"]

    def observability(self, stream: str) -> dict[str, Any] | None:
        """Names this stream and the trace stream that the options declare."""
        traces = self.options.traces_stream
        return {"request": {"events_stream": stream, "traces_stream": traces}} if traces is not None else None
