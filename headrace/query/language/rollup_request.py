"""Parses and checks the body of an aggregate request, and renders groups as JSON text.

Jobs that render groups ahead and requests use the same code. Numbers are printed as JavaScript does where that is JSON:
whole numbers without a point; a number that a double can't hold is null.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace import decoding, instants
from headrace.errors import InvalidRequest
from headrace.query.language import grammar, histogram, query
from headrace.query.language.canonical import WHITE_SPACE, Count, Measure, SearchConfig, interval_ms
from headrace.query.language.query import And, Equals, Node
from headrace.query.language.rollup import MAX_TIME_MS, CompiledRollup, Part, Row, key_text, rollups

# For a request that asked for more than an answer can hold.
ADVICE = "ask for a narrower range, a coarser interval, fewer dimensions in group_by, or fewer measures"

_NANOS = re.compile(r"\d{1,25}", re.ASCII)
_MS_NANOS = 1_000_000
_MAX_SHOWN = 64  # characters of a client's text in an error


class Window(NamedTuple):
    """A range of time, `[start_ms, end_ms)`."""

    start_ms: int
    end_ms: int


class AggregateRequest(NamedTuple):
    """A checked aggregate request.

    Attributes:
        rollup: the compiled rollup.
        window: the range of time of the records that count.
        interval: one of the rollup's intervals, as configured.
        interval_ms: its length in milliseconds.
        query: the query that records must match; None means all.
        group_by: the dimensions by which records are grouped, in order.
        measures: the measures to show, in order.
        explain: whether the answer says how it was computed.
    """

    rollup: CompiledRollup
    window: Window
    interval: str
    interval_ms: int
    query: Node | None
    group_by: tuple[str, ...]
    measures: tuple[str, ...]
    explain: bool = False

    @property
    def aligned(self) -> Window | None:
        """The part of the window that consists of whole intervals; None if there is none."""
        interval = self.interval_ms
        start, end = -(-self.window.start_ms // interval) * interval, self.window.end_ms // interval * interval
        return Window(start, end) if start < end else None

    @property
    def widened(self) -> AggregateRequest:
        """The same request with a window of whole intervals, those that its own window touches."""
        interval, window = self.interval_ms, self.window
        whole = Window(window.start_ms // interval * interval, -(-window.end_ms // interval) * interval)
        return self._replace(window=whole)

    @property
    def edges(self) -> list[Window]:
        """The parts of the window that are not whole intervals."""
        aligned = self.aligned
        if aligned is None:
            return [self.window]
        edges = (Window(self.window.start_ms, aligned.start_ms), Window(aligned.end_ms, self.window.end_ms))
        return [edge for edge in edges if edge.start_ms < edge.end_ms]

    @property
    def dimension_values(self) -> dict[str, frozenset[Any]] | None:
        """The values that the query demands of dimensions, if it demands nothing else, so that groups alone can answer
        it.

        Maps each dimension to the values that it must all equal; empty if there is no query. None if groups can't
        answer the query.
        """
        demanded: dict[str, frozenset[Any]] = {}
        nodes: list[Node] = [] if self.query is None else [self.query]
        while nodes:
            node = nodes.pop()
            if isinstance(node, And):
                nodes += node.parts
            elif isinstance(node, Equals) and node.field in self.rollup.dimensions:
                demanded[node.field] = demanded.get(node.field, frozenset()) | {node.value}
            else:
                return None
        return demanded

    @property
    def is_whole(self) -> bool:
        """Whether groups are shown as the rollup stores them: with every dimension and every measure."""
        return self.group_by == self.rollup.dimensions and self.measures == self.rollup.measures

    @property
    def fields(self) -> frozenset[str]:
        """The fields whose values decide what a record contributes."""
        return self.rollup.fields if self.query is None else self.rollup.fields | query.fields_of(self.query)


def parse(body: Any, config: SearchConfig | None) -> AggregateRequest:
    """Parses the body of an aggregate request; unknown members are ignored.

    Args:
        body: the parsed JSON body.
        config: the stream's search configuration; None if it has none.

    Raises:
        InvalidRequest: the request is malformed, or asks for something that is not configured.
    """
    if config is None:
        raise InvalidRequest("an aggregate needs a schema with search fields and rollups")
    if not isinstance(body, dict):
        raise InvalidRequest("an aggregate request is a JSON object")
    name = _text(body, "rollup")
    rollup = rollups(config).get(name)
    if rollup is None:
        raise InvalidRequest(f"rollup: no rollup of this name: {name[:_MAX_SHOWN]!r}")
    window = Window(_time(body, "from"), _time(body, "to"))
    if window.end_ms <= window.start_ms:
        raise InvalidRequest("to must be after from")
    interval = _text(body, "interval")
    if interval not in rollup.rollup.intervals:
        raise InvalidRequest(
            f"interval: not of rollup {name}: {interval[:_MAX_SHOWN]!r} allowed={','.join(rollup.rollup.intervals)}"
        )
    asked = body.get("q")
    if asked is not None and not isinstance(asked, str):
        raise InvalidRequest("q must be a string")
    return AggregateRequest(
        rollup=rollup,
        window=window,
        interval=interval,
        interval_ms=interval_ms(interval),
        query=grammar.parse_query(asked, config) if asked is not None else None,
        group_by=_names(body, "group_by", rollup.dimensions, "dimension") or (),
        measures=_measures(body, rollup),
        explain=_flag(body, "explain"),
    )


def _text(body: dict[str, Any], member: str) -> str:
    text = body.get(member)
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequest(f"{member} must be a string that is not empty")
    return text.strip()


def _time(body: dict[str, Any], member: str) -> int:
    """Returns the milliseconds of a member: ISO text, nanoseconds in digits, or a number of milliseconds; fractions are cut
    off. Raises InvalidRequest if it is none of these.
    """
    value = body.get(member)
    found: int | None = None
    if isinstance(value, str):
        text = value.strip(WHITE_SPACE)
        found = int(text) // _MS_NANOS if _NANOS.fullmatch(text) else instants.parse_ms(text)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = int(value)
    if found is None or not -MAX_TIME_MS <= found <= MAX_TIME_MS:
        raise InvalidRequest(f"{member} must be an ISO time, nanoseconds in digits, or a number of milliseconds")
    return found


def _measures(body: dict[str, Any], rollup: CompiledRollup) -> tuple[str, ...]:
    found = _names(body, "measures", rollup.measures, "measure")
    if found is None:
        return rollup.measures
    if not found:
        raise InvalidRequest("measures must not be empty")
    return found


def _names(body: dict[str, Any], member: str, allowed: Sequence[str], noun: str) -> tuple[str, ...] | None:
    """Returns the names in a list, each once and sorted; None if the member is missing. Raises InvalidRequest for a name
    that is not allowed.
    """
    if member not in body:
        return None
    try:
        given = decoding.from_builtins(body[member], list[str])
    except msgspec.ValidationError as exc:
        raise InvalidRequest(f"{member} must be an array of strings") from exc
    for name in given:
        if name.strip() not in allowed:
            raise InvalidRequest(f"{member}: no such {noun} in the rollup: {name[:_MAX_SHOWN]!r}")
    return tuple(sorted({name.strip() for name in given}))


def _flag(body: dict[str, Any], member: str) -> bool:
    value = body.get(member)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise InvalidRequest(f"{member} must be true or false")
    return value


_WHOLE = 10**21  # ECMA-262 § 6.1.6.1.20: from here on, numbers are printed with an exponent
_SHARES = (0.5, 0.95, 0.99)
_encode = msgspec.json.Encoder().encode


def number(value: float | None) -> str:
    """Formats a number as JSON text; `null` for None and for a number that is not finite."""
    if value is None:
        return "null"
    try:
        whole = int(value)
    except (OverflowError, ValueError):
        return "null"
    return str(whole) if whole == value and -_WHOLE < whole < _WHOLE else repr(value)


def fragment(rollup: CompiledRollup, row: Row) -> str:
    """Formats a whole group as JSON text: every dimension in its key, and every measure."""
    return group(
        key_text(rollup.dimensions, row.dimensions),
        {name: (rollup.rollup.measures[name], part) for name, part in zip(rollup.measures, row.parts, strict=True)},
    )


def group(key: str, measures: Mapping[str, tuple[Measure, Part]]) -> str:
    """Formats a group with the given measures as JSON text.

    Args:
        key: the JSON text of its key.
        measures: the measures by name, in the order in which to show them.
    """
    shown = ",".join(f'"{name}":{measure(kind, part)}' for name, (kind, part) in measures.items())
    return f'{{"key":{key},"measures":{{{shown}}}}}'


def measure(kind: Measure, part: Part) -> str:
    """Formats the values of a measure for a group as JSON text."""
    if isinstance(kind, Count):
        return f'{{"count":{number(part.count)}}}'
    average = part.sum / part.count if part.sum is not None and part.count > 0 else None
    head = (
        f'{{"count":{number(part.count)},"sum":{number(part.sum)},'
        f'"min":{number(part.min)},"max":{number(part.max)},"avg":{number(average)}'
    )
    if not part.histogram:
        return head + ',"p50":null,"p95":null,"p99":null}'
    buckets = histogram.sort_buckets(part.histogram)
    p50, p95, p99 = histogram.percentiles(buckets, _SHARES)
    counts = ",".join(f"{_name(name)}:{number(count)}" for _, name, count in buckets)
    return head + f',"p50":{number(p50)},"p95":{number(p95)},"p99":{number(p99)},"histogram":{{{counts}}}}}'


def bucket(start_ms: int, interval_ms: int, groups: Iterable[str]) -> str:
    """Formats one time bucket as JSON text: its start, its end `interval_ms` later (both RFC 3339), and its groups, which
    are JSON texts already.
    """
    start, end = instants.render(start_ms), instants.render(start_ms + interval_ms)
    return f'{{"start":"{start}","end":"{end}","groups":[{",".join(groups)}]}}'


def _name(name: str) -> str:
    return f'"{name}"' if name.isascii() and name.isalnum() else _encode(name).decode()


def names(rollup: CompiledRollup, wanted: Sequence[str]) -> dict[str, tuple[int, Measure]]:
    """Returns for each wanted measure its name, its position among a row's parts, and the measure."""
    return {name: (rollup.measures.index(name), rollup.rollup.measures[name]) for name in wanted}
