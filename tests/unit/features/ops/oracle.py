"""What each operator answers, recomputed from all events with the plainest code. It shares nothing with the operators."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

import xxhash


class Event(NamedTuple):
    """One event as it is in the log, and whether the feature's condition holds for it."""

    stamp: int
    lane: int
    offset: int
    row: dict[str, Any]
    matches: bool = True


def live(events: list[Event], window: int | None, now: int) -> list[Event]:
    """Returns the events whose bucket of ceil(window / 64) ms started less than the window ago."""
    if window is None:
        return events
    width = math.ceil(window / 64)
    return [event for event in events if now - event.stamp // width * width < window]


def answer(op: str, params: dict[str, Any], events: list[Event], now: int) -> Any:
    """Returns the value of the feature as of `now`. Events come in the order of the log."""
    everything = events
    if op not in ("ratio", "streak", "max_streak", "negative_streak"):
        everything = [event for event in events if event.matches]
    if "field" in params:
        everything = [event for event in everything if event.row[params["field"]] is not None]
    if "lat_field" in params:
        lat, lon = params["lat_field"], params["lon_field"]
        everything = [e for e in everything if e.row[lat] is not None and e.row[lon] is not None]
    window = None if op == "first_seen_in_window" else params.get("window")
    return globals()[f"_{op}"](params, live(everything, window, now), everything, now)


def _values(params: dict[str, Any], events: list[Event]) -> list[Any]:
    return [event.row[params["field"]] for event in events]


def _mean(params, events, *_):
    values = _values(params, events)
    return math.fsum(values) / len(values) if values else None


def _squares(values: list[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _count(params, events, *_):
    return len(events)


def _sum(params, events, *_):
    return math.fsum(_values(params, events)) if events else None


def _min(params, events, *_):
    return min(_values(params, events), default=None)


def _max(params, events, *_):
    return max(_values(params, events), default=None)


def _var(params, events, *_):
    values = _values(params, events)
    return _squares(values) / (len(values) - 1) if len(values) > 1 else None


def _std(params, events, *_):
    variance = _var(params, events)
    return None if variance is None else math.sqrt(variance)


def _ratio(params, events, *_):
    return sum(event.matches for event in events) / len(events) if events else None


def _n_unique(params, events, *_):
    return len(set(_values(params, events)))


def _first(params, events, *_):
    return next(iter(_values(params, events)), None)


def _last(params, events, *_):
    return next(reversed(_values(params, events)), None)


def _quantile(params, events, *_):
    values = sorted(_values(params, events))
    if not values:
        return None
    place = params["q"] * (len(values) - 1)
    low, high = values[math.floor(place)], values[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def _top_k(params, events, *_):
    counts = Counter(_values(params, events))
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"value": value, "count": count} for value, count in ordered[: params["k"]]]


def _entropy(params, events, *_):
    counts = Counter(_values(params, events)).values()
    return -math.fsum(n / len(events) * math.log2(n / len(events)) for n in counts) if events else 0.0


def _bloom_member(params, events, *_):
    values = _values(params, events)
    return bool(values) and values[-1] in values[:-1]


def _histogram(params, events, *_):
    bounds, answer = params["buckets"], {}
    for low, high in zip([None, *bounds], [*bounds, None], strict=True):
        label = f"<{high}" if low is None else f">={low}" if high is None else f"{low}-{high}"
        answer[label] = sum(
            (low is None or value >= low) and (high is None or value < high) for value in _values(params, events)
        )
    return answer


def _hour_of_day_histogram(params, events, *_):
    hours = [datetime.fromtimestamp(event.stamp / 1000, UTC).hour for event in events]
    return [hours.count(hour) for hour in range(24)]


def _dow_hour_histogram(params, events, *_):
    hours = [datetime.fromtimestamp(event.stamp / 1000, UTC).strftime("%a-%H") for event in events]
    days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    return {f"{day}-{hour:02}": hours.count(f"{day}-{hour:02}") for day in days for hour in range(24)}


def _event_type_mix(params, events, *_):
    values, kept = _values(params, events), []
    for value in values:
        if value not in kept and (
            value in params["categories"] if "categories" in params else len(kept) < params["max_categories"]
        ):
            kept.append(value)
    return {_text(value): values.count(value) / len(values) for value in kept}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value + 0.0:g}" if isinstance(value, float) else json.dumps(value)


def _most_recent_n(params, events, *_):
    return _values(params, events)[-params["n"] :]


def _last_n(params, events, *_):
    return _values(params, events)[-params["n"] :]


def _first_n(params, events, *_):
    return _values(params, events)[: params["n"]]


def _lag(params, events, *_):
    values = _values(params, events)
    return values[-1 - params["n"]] if len(values) > params["n"] else None


def _reservoir_sample(params, events, *_):
    def rank(event: Event) -> int:
        return xxhash.xxh64_intdigest(struct.pack(">qqq", event.stamp, event.lane, event.offset))

    return _values(params, sorted(events, key=rank)[: params["samples"]])


def _first_seen(params, events, *_):
    return events[0].stamp if events else None


def _last_seen(params, events, *_):
    return events[-1].stamp if events else None


def _age(params, events, everything, now):
    return now - events[0].stamp if events else None


def _time_since(params, events, everything, now):
    return now - events[-1].stamp if events else None


def _time_since_last_n(params, events, everything, now):
    return now - events[-params["n"]].stamp if len(events) >= params["n"] else None


def _has_seen(params, events, *_):
    return bool(events)


def _first_seen_in_window(params, events, everything, now):
    return any(now - event.stamp < params["window"] for event in events)


def _runs(events: list[Event], wanted: bool) -> list[int]:
    """Returns the length of the run that ends at each event."""
    lengths: list[int] = []
    for event in events:
        lengths.append((lengths[-1] if lengths else 0) + 1 if event.matches is wanted else 0)
    return lengths or [0]


def _streak(params, events, *_):
    return _runs(events, True)[-1]


def _max_streak(params, events, *_):
    return max(_runs(events, True))


def _negative_streak(params, events, *_):
    return _runs(events, False)[-1]


def _steps(params, events):
    """Yields for each event its value and the ms since the one before, None for the first."""
    stamps = [event.stamp for event in events]
    gaps = [None, *(b - a for a, b in pairwise(stamps))][: len(stamps)]
    return zip(_values(params, events), gaps, strict=True)


def _ewma(params, events, *_):
    mean = None
    for value, gap in _steps(params, events):
        if gap is None:
            mean = value
        else:
            weight = 0.5 if gap == 0 else 1 - math.pow(0.5, gap / params["half_life"])
            mean = mean * (1 - weight) + value * weight
    return mean


_ema = _ewma


def _moving(params, events):
    """Returns the variance, and how far the newest value is from the mean that it has moved."""
    mean, variance, rest = None, 0.0, 0.0
    for value, gap in _steps(params, events):
        if gap is None:
            mean = value
            continue
        stays = math.pow(0.5, gap / params["half_life"])
        rest = stays * (value - mean)
        variance = stays * variance + (1 - stays) * (value - mean) * rest
        mean = value - rest
    return variance, rest


def _ewvar(params, events, *_):
    return _moving(params, events)[0] if events else None


def _ew_zscore(params, events, *_):
    variance, rest = _moving(params, events)
    return rest / math.sqrt(variance) if variance else None


def _decayed_sum(params, events, *_):
    if not events:
        return None
    newest = events[-1].stamp
    return math.fsum(
        value * math.pow(0.5, (newest - event.stamp) / params["half_life"])
        for value, event in zip(_values(params, events), events, strict=True)
    )


def _decayed_count(params, events, *_):
    if not events:
        return None
    return math.fsum(math.pow(0.5, (events[-1].stamp - event.stamp) / params["half_life"]) for event in events)


def _twa(params, events, *_):
    if not events:
        return None
    values = _values(params, events)
    gaps = [b.stamp - a.stamp for a, b in pairwise(events)]
    if not sum(gaps):
        return values[-1]
    return math.fsum(value * gap for value, gap in zip(values, gaps, strict=False)) / sum(gaps)


def _rate_of_change(params, events, *_):
    if len(events) < 2 or events[-1].stamp == events[-2].stamp:
        return None
    before, newest = _values(params, events)[-2:]
    return (newest - before) / (events[-1].stamp - events[-2].stamp)


def _inter_arrival_stats(params, events, *_):
    return (events[-1].stamp - events[0].stamp) / (len(events) - 1) if len(events) > 1 else None


def _burst_count(params, events, everything, now):
    """Each live event counts the events of its sub-window up to itself."""
    most = 0
    for place, event in enumerate(everything):
        if event in events:
            width = params["sub_window"]
            earlier = [other for other in everything[: place + 1] if other.stamp // width == event.stamp // width]
            most = max(most, len(earlier))
    return most


def _line(params, events):
    if len({event.stamp for event in events}) < 2:
        return None
    times = [event.stamp - events[0].stamp for event in events]
    values = _values(params, events)
    time, value = math.fsum(times) / len(times), math.fsum(values) / len(values)
    slope = math.fsum((t - time) * (v - value) for t, v in zip(times, values, strict=True)) / math.fsum(
        (t - time) ** 2 for t in times
    )
    return slope, values[-1] - (value + slope * (times[-1] - time))


def _trend(params, events, *_):
    line = _line(params, events)
    return line[0] if line else None


def _trend_residual(params, events, *_):
    line = _line(params, events)
    return line[1] if line else None


def _outlier_count(params, events, everything, now):
    outliers = 0
    for place, event in enumerate(everything):
        before = _values(params, everything[:place])
        if event in events and len(before) >= 5:
            spread = math.sqrt(_squares(before) / (len(before) - 1))
            distance = abs(event.row[params["field"]] - math.fsum(before) / len(before))
            outliers += spread > 0 and distance > params["sigma"] * spread
    return outliers


def _value_change_count(params, events, everything, now):
    values = _values(params, everything)
    return sum(
        event in events and values[place] != values[place - 1] for place, event in enumerate(everything) if place
    )


def _score(values: list[float]) -> float | None:
    if len(values) < 2 or not _squares(values):
        return None
    return (values[-1] - math.fsum(values) / len(values)) / math.sqrt(_squares(values) / (len(values) - 1))


def _z_score(params, events, *_):
    return _score(_values(params, events))


def _seasonal_deviation(params, events, *_):
    hours = [event.stamp // 3_600_000 % 24 for event in events]
    return _score([value for value, hour in zip(_values(params, events), hours, strict=True) if hour == hours[-1]])


def _delta_from_prev(params, events, *_):
    if len(events) < 2:
        return None
    before, newest = _values(params, events)[-2:]
    change = newest - before
    return change if isinstance(change, float) else min(2**63 - 1, max(-(2**63), change))


def _points(params, events) -> list[tuple[float, float]]:
    return [(event.row[params["lat_field"]], event.row[params["lon_field"]]) for event in events]


def _km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """The angle between the two points' vectors, by atan2: another formula than haversine's."""
    ax, ay, bx, by = (math.radians(degrees) for degrees in (*a, *b))
    va = (math.cos(ax) * math.cos(ay), math.cos(ax) * math.sin(ay), math.sin(ax))
    vb = (math.cos(bx) * math.cos(by), math.cos(bx) * math.sin(by), math.sin(bx))
    cross = (va[1] * vb[2] - va[2] * vb[1], va[2] * vb[0] - va[0] * vb[2], va[0] * vb[1] - va[1] * vb[0])
    return 6371 * math.atan2(math.hypot(*cross), sum(p * q for p, q in zip(va, vb, strict=True)))


def _legs(params, events) -> list[float]:
    points = _points(params, events)
    return [_km(a, b) for a, b in pairwise(points)]


def _geo_distance(params, events, *_):
    return math.fsum(_legs(params, events))


def _geo_velocity(params, events, *_):
    if not events:
        return None
    gaps = [b.stamp - a.stamp for a, b in pairwise(events)]
    return max([0.0, *(km / gap * 3_600_000 for km, gap in zip(_legs(params, events), gaps, strict=True) if gap)])


def _geo_spread(params, events, *_):
    if len(events) < 2:
        return None
    lats, lons = zip(*_points(params, events), strict=True)
    shrink = math.cos(math.radians(math.fsum(lats) / len(lats)))
    return 111.32 * math.sqrt((_squares(lats) + _squares(lons) * shrink**2) / len(events))


def _distance_from_home(params, events, *_):
    points = _points(params, events)[-params["samples"] :]
    if not points:
        return None
    lats, lons = zip(*points, strict=True)
    return _km((math.fsum(lats) / len(lats), math.fsum(lons) / len(lons)), points[-1])
