"""Pages of records that fit through a buffered door: as many of a page's records as its answer can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from functions.api.door.bodies import AnswerTooLarge, fits, is_buffered
from functions.api.streams import pages, sse
from functions.api.streams.queries import ReadQuery
from headrace.log.requests import At, ReadPage, Selection
from headrace.streams.verbs import Streams

Read = Callable[..., ReadPage]


def reader(scope: Mapping[str, Any], logs: Streams, query: ReadQuery) -> Read:
    """`logs.read`, with pages that fit through the request's door.

    It raises `AnswerTooLarge` besides: a page begins with a record that does not fit.
    """
    if not is_buffered(scope):
        return logs.read

    def read(name: str, at: At, selection: Selection, **options: Any) -> ReadPage:
        page = logs.read(name, at, selection, **options)
        while (count := fitting(page, query)) < len(page.data):
            # Read again, so that the page says itself where it ends: with a selection only a read knows.
            page = logs.read(name, at, selection, **{**options, "touch": False}, max_records=max(1, count))
            if not count:
                raise AnswerTooLarge(page.text(page.next))
        return page

    return read


def fitting(page: ReadPage, query: ReadQuery) -> int:
    """How many of the page's first records make an answer that fits."""
    few, many = 0, len(page.data) + 1
    count = len(page.data)  # the first guess is nearly always right
    while many - few > 1:
        body, content_type = _answer(page._replace(data=page.data[:count]), query)
        if fits(body, content_type):
            few = count
        else:
            many = count
        count = (few + many) // 2
    return few


def _answer(page: ReadPage, query: ReadQuery) -> tuple[bytes, str]:
    if query.live == "sse":
        return sse.data_event(page, query), sse.CONTENT_TYPE
    return pages.body_of(page, query), pages.shown_type(page, query)
