"""Metric intervals: what a series did between two moments, as count, sum, extremes and histogram.

envelope  an interval in any accepted shape to the canonical one
schema    the schema, search registry and rollup that come with it
"""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.streams.profiles import strict
from headrace.streams.profiles.metrics import envelope, schema
from headrace.streams.profiles.profile import Profile


class Metrics(Profile, frozen=True):
    """Intervals of metric series, found by series.

    Attributes:
        system: it is the server's own stream, which has the schema alone. With a routing key or search, numbers about
            the server would make it index, which makes numbers.
    """

    kind: ClassVar[str] = "metrics"
    reads_records: ClassVar[bool] = True
    needs_json: ClassVar[bool] = True
    needs_empty: ClassVar[bool] = True  # earlier records would not be intervals
    families: ClassVar[tuple[str, ...]] = ("mblk",)

    system: bool = False

    @staticmethod
    def parse(document: dict[str, Any]) -> Metrics:
        """Reads its document, which has no options.

        Raises:
            InvalidRequest: it has one.
        """
        strict.only(document, ("kind",), "profile")
        return Metrics()

    def registry(self) -> dict[str, Any]:
        """Returns the canonical schema; for all but the system stream with routing key, search fields and rollup."""
        return schema.system_registry() if self.system else schema.registry()

    def normalize(self, document: Any, now_ms: int) -> tuple[dict[str, Any], str | None]:  # noqa: ARG002
        """Returns the canonical interval; the key is its series.

        Raises:
            InvalidRequest: not an interval.
        """
        interval = envelope.normalize(document)
        return interval, interval["seriesKey"]
