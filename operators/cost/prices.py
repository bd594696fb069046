"""The price table (US dollars for a number of units, each price with its day and source), and bills made with it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import msgspec

TABLE = Path(__file__).with_name("prices.toml")


class BadPrices(ValueError):
    """A price table can't be used; the message says which entry, and why."""


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`usd` US dollars buy `per` units.

    Attributes:
        as_of: the day until which it is known to have held.
        source: the page that says so.
    """

    usd: float
    per: int
    unit: str
    as_of: date
    source: str

    def of(self, quantity: float) -> float:
        """Returns the US dollars for that many units."""
        return quantity * self.usd / self.per


class Prices(msgspec.Struct, frozen=True):
    """Prices by name, such as `dynamodb.write`."""

    region: str
    entries: Mapping[str, Price]

    def __getitem__(self, name: str) -> Price:
        return self.entries[name]

    @property
    def oldest(self) -> date:
        """Returns the day of the price that was checked longest ago."""
        return min(price.as_of for price in self.entries.values())

    def replaced(self, other: Prices) -> Prices:
        """Returns these prices, with those of `other` in their place.

        Raises:
            BadPrices: `other` names something that nothing is paid for here.
        """
        unknown = sorted(set(other.entries) - set(self.entries))
        if unknown:
            raise BadPrices(f"no such price: {', '.join(unknown)}; known={', '.join(sorted(self.entries))}")
        return Prices(other.region or self.region, {**self.entries, **other.entries})


def parse(data: bytes) -> Prices:
    """Returns the price table of a TOML document: `region`, and a table for each price, such as `[dynamodb.write]`.

    Raises:
        BadPrices: it is not such a table, or a price is negative or for no units.
    """
    try:
        document = tomllib.loads(data.decode())
        region = msgspec.convert(document.pop("region", ""), str)
        services = msgspec.convert(document, dict[str, dict[str, Price]])
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as exc:
        raise BadPrices(f"not a price table: {exc}") from exc
    entries = {f"{service}.{name}": price for service, its in services.items() for name, price in its.items()}
    for name, price in entries.items():
        if price.usd < 0 or price.per < 1:
            raise BadPrices(f"a price is negative, or for no units: {name} usd={price.usd} per={price.per}")
    return Prices(region, entries)


def standard() -> Prices:
    """Returns the table that comes with Headrace."""
    return parse(TABLE.read_bytes())


@dataclass(frozen=True)
class Line:
    """One thing that is paid for. `price` names the entry of the price table; `part` is why it is needed."""

    part: str
    price: str
    quantity: float
    usd: float


@dataclass(frozen=True)
class Bill:
    """Lines of one month, nothing twice."""

    name: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def usd(self) -> float:
        """Returns the sum."""
        return sum(line.usd for line in self.lines)

    def of(self, part: str, price: str) -> float:
        """Returns the US dollars of one line; 0 if there is none."""
        return sum(line.usd for line in self.lines if (line.part, line.price) == (part, price))

    def parts(self) -> dict[str, float]:
        """Returns the US dollars of each part, in the order of the lines."""
        sums: dict[str, float] = {}
        for line in self.lines:
            sums[line.part] = sums.get(line.part, 0.0) + line.usd
        return sums


@dataclass
class Ledger:
    """Quantities by part and price, in the order in which they came."""

    prices: Prices
    _held: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, part: str, price: str, quantity: float) -> None:
        """Adds a quantity of something."""
        self._held[part, price] = self._held.get((part, price), 0.0) + quantity

    def bill(self, name: str, notes: tuple[str, ...] = ()) -> Bill:
        """Returns what was added, priced. Quantities of 0 are left out."""
        return Bill(name, tuple(self._lines()), notes)

    def _lines(self) -> Iterator[Line]:
        for (part, price), quantity in self._held.items():
            if quantity:
                yield Line(part, price, quantity, self.prices[price].of(quantity))
