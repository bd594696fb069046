"""The profile `metrics`: the values of a series between two moments, as count, sum, extremes and histogram.

envelope  converts an interval of any accepted shape to the canonical one
schema    the schema, search configuration and rollup of a metrics stream
"""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.streams.profiles import strict
from headrace.streams.profiles.metrics import envelope, schema
from headrace.streams.profiles.profile import Profile


class Metrics(Profile, frozen=True):
    """The profile of intervals of metric series. The routing key is the series.

    Attributes:
        system: whether this is the server's own stream, which has only the schema. With a routing key or search fields,
            the server's own metrics would cause index jobs, which cause metrics.
    """

    kind: ClassVar[str] = "metrics"
    reads_records: ClassVar[bool] = True
    needs_json: ClassVar[bool] = True
    needs_empty: ClassVar[bool] = True  # earlier records would not be intervals
    families: ClassVar[tuple[str, ...]] = ("mblk",)

    system: bool = False

    @staticmethod
    def parse(document: dict[str, Any]) -> Metrics:
        """Parses the profile document, which has no options.

        Raises:
            InvalidRequest: the document has an option.
        """
        strict.only(document, ("kind",), "profile")
        return Metrics()

    def registry(self) -> dict[str, Any]:
        """Returns the canonical schema, for all but the system stream with routing key, search fields and rollup."""
        return schema.system_registry() if self.system else schema.registry()

    def normalize(self, document: Any, now_ms: int) -> tuple[dict[str, Any], str | None]:  # noqa: ARG002
        """Converts a record to the canonical interval. The routing key is its series.

        Raises:
            InvalidRequest: the record is not an interval.
        """
        interval = envelope.normalize(document)
        return interval, interval["seriesKey"]
