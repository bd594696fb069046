"""Aggregating records one by one: those of the tail, of segments without an index, and those an index can't tell about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace import deadline
from headrace.query.engine.documents import Document, Promoter
from headrace.query.language import match
from headrace.query.language.rollup import Cell, Key, Row, add
from headrace.query.language.rollup_request import AggregateRequest, Window

_BETWEEN_CHECKS = 256  # documents: some 5 ms


class Scan:
    """Groups that grow record by record.

    Attributes:
        documents: how many records were looked at.
        newest_timestamp: greatest primary timestamp among them, milliseconds; None without one.
    """

    def __init__(self, request: AggregateRequest, promoter: Promoter, primary_timestamp: str) -> None:
        """Nothing yet."""
        self._request = request
        self._promoter = promoter
        self._primary = primary_timestamp
        self._fields = request.fields | {primary_timestamp}
        self._cells: dict[tuple[int, Key], Cell] = {}
        self.documents = 0
        self.newest_timestamp: int | None = None

    def add(self, documents: Iterable[Document], windows: Sequence[Window]) -> None:
        """Takes in records whose timestamps lie in one of the windows.

        Raises:
            DeadlineExceeded: the request's time is over.
            InvalidRequest: a lens can't promote a record.
        """
        rollup, interval = self._request.rollup, self._request.interval_ms
        for document in documents:
            if self.documents % _BETWEEN_CHECKS == 0:
                deadline.check()
            self.documents += 1
            values = self._promoter.values(document, self._fields)
            self._see(values.get(self._primary, ()))
            contribution = rollup.contribution(values, document.value)
            if contribution is None:
                continue
            timestamp = contribution.timestamp_ms
            if not any(window.start_ms <= timestamp < window.end_ms for window in windows):
                continue
            if self._request.query is None or match.matches(self._request.query, values):
                add(self._cells, rollup, interval, contribution)

    def _see(self, times: Sequence[object]) -> None:
        for time in times:
            if isinstance(time, int) and (self.newest_timestamp is None or time > self.newest_timestamp):
                self.newest_timestamp = time

    @property
    def rows(self) -> list[Row]:
        """The groups so far, in no order."""
        rollup = self._request.rollup
        return [
            Row(rollup.name, self._request.interval_ms, start, key, cell.records, cell.parts)
            for (start, key), cell in self._cells.items()
        ]
