"""Operators over points of latitude and longitude in degrees. None has a window."""

from __future__ import annotations

import math
from typing import Any

from headrace.features.pipeline.ops.core import root
from headrace.features.pipeline.windows import LIST_BYTES, NUMBER_BYTES, Cell, Operator, View

EARTH_KM = 6371.0
KM_PER_DEGREE = 111.32
HOUR_MS = 3_600_000


def haversine_km(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """Returns the great-circle distance of two points."""
    north, south = math.radians(lat), math.radians(other_lat)
    half = math.sin((south - north) / 2) ** 2
    half += math.cos(north) * math.cos(south) * math.sin(math.radians(other_lon - lon) / 2) ** 2
    return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(max(0.0, half))))


class _Path(Operator):
    """Empty, or a number, the newest point and its stamp."""

    reads = "point"

    __slots__ = ()

    def new(self) -> Cell:
        return []

    @property
    def max_bytes(self) -> int:
        return LIST_BYTES + 4 * NUMBER_BYTES


class GeoVelocity(_Path):
    """The highest speed between consecutive points, in km/h: null before the first point, 0 after it.

    Points of one stamp have no speed.
    """

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        lat, lon = value
        if not cell:
            cell += (0.0, lat, lon, stamp_ms)
            return
        passed = stamp_ms - cell[3]
        if passed:
            cell[0] = max(cell[0], haversine_km(cell[1], cell[2], lat, lon) * HOUR_MS / passed)
        cell[1], cell[2], cell[3] = lat, lon, stamp_ms

    def read(self, cell: Cell, view: View) -> Any:
        return cell[0] if cell else None


class GeoDistance(_Path):
    """The length of the path through all points, in km."""

    __slots__ = ()

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        lat, lon = value
        if not cell:
            cell += (0.0, lat, lon)
            return
        cell[0] += haversine_km(cell[1], cell[2], lat, lon)
        cell[1], cell[2] = lat, lon

    def read(self, cell: Cell, view: View) -> Any:
        return cell[0] if cell else 0.0


class GeoSpread(Operator):
    """The root mean square of the points' distances from their centroid, in km; null below two points.

    A degree of latitude counts 111.32 km, one of longitude as much less as the centroid's parallel is shorter than the
    equator. Longitudes are not wrapped at 180 degrees.
    """

    reads = "point"

    __slots__ = ()

    def new(self) -> Cell:
        return [0, 0.0, 0.0, 0.0, 0.0]

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        lat, lon = value
        count = cell[0] = cell[0] + 1
        north, east = lat - cell[1], lon - cell[2]
        cell[1] += north / count
        cell[2] += east / count
        cell[3] += north * (lat - cell[1])
        cell[4] += east * (lon - cell[2])

    def read(self, cell: Cell, view: View) -> Any:
        count, lat, _, north, east = cell
        shrink = math.cos(math.radians(lat))
        return root((north + east * shrink * shrink) / count) * KM_PER_DEGREE if count > 1 else None

    @property
    def max_bytes(self) -> int:
        return LIST_BYTES + 5 * NUMBER_BYTES


class DistanceFromHome(Operator):
    """The distance of the newest point from the centroid of the last `samples` points, itself included, in km."""

    reads = "point"

    __slots__ = ("samples",)

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params)
        self.samples: int = params["samples"]

    def new(self) -> Cell:
        return [[], []]

    def fold(self, cell: Cell, value: Any, stamp_ms: int, lane: int, offset: int) -> None:
        lats, lons = cell
        lat, lon = value
        lats.append(lat)
        lons.append(lon)
        if len(lats) > self.samples:
            del lats[0], lons[0]

    def read(self, cell: Cell, view: View) -> Any:
        lats, lons = cell
        if not lats:
            return None
        return haversine_km(sum(lats) / len(lats), sum(lons) / len(lons), lats[-1], lons[-1])

    @property
    def max_bytes(self) -> int:
        return 3 * LIST_BYTES + 2 * self.samples * NUMBER_BYTES
