"""The price table (US dollars per number of units, each price with its date and source), and bills computed with it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import msgspec

from headrace import decoding

TABLE = Path(__file__).with_name("prices.toml")


class BadPrices(ValueError):
    """A price table is invalid; the message says which entry, and why."""


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A price: `usd` US dollars buy `per` units.

    Attributes:
        as_of: the date on which the price was last checked.
        source: the page that states it.
    """

    usd: float
    per: int
    unit: str
    as_of: date
    source: str

    def of(self, quantity: float) -> float:
        """Returns the cost of a number of units in US dollars."""
        return quantity * self.usd / self.per


class Prices(msgspec.Struct, frozen=True):
    """Prices by name, such as `dynamodb.write`."""

    region: str
    entries: Mapping[str, Price]

    def __getitem__(self, name: str) -> Price:
        return self.entries[name]

    @property
    def oldest(self) -> date:
        """Returns the date of the price that was checked longest ago."""
        return min(price.as_of for price in self.entries.values())

    def replaced(self, other: Prices) -> Prices:
        """Returns a copy in which the prices of `other`, and its region if it names one, replace these.

        Raises:
            BadPrices: `other` has a price that this table does not have.
        """
        unknown = sorted(set(other.entries) - set(self.entries))
        if unknown:
            raise BadPrices(f"no such price: {', '.join(unknown)}; known={', '.join(sorted(self.entries))}")
        return Prices(other.region or self.region, {**self.entries, **other.entries})


def parse(data: bytes) -> Prices:
    """Parses a price table from TOML: `region`, and a table for each price, such as `[dynamodb.write]`.

    Raises:
        BadPrices: the document has another form, or a price is negative or for zero units.
    """
    try:
        document = tomllib.loads(data.decode())
        region = decoding.from_builtins(document.pop("region", ""), str)
        services = decoding.from_builtins(document, dict[str, dict[str, Price]])
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as exc:
        raise BadPrices(f"not a price table: {exc}") from exc
    entries = {f"{service}.{name}": price for service, its in services.items() for name, price in its.items()}
    for name, price in entries.items():
        if price.usd < 0 or price.per < 1:
            raise BadPrices(f"a price is negative, or for no units: {name} usd={price.usd} per={price.per}")
    return Prices(region, entries)


def standard() -> Prices:
    """Loads the price table that comes with Headrace."""
    return parse(TABLE.read_bytes())


@dataclass(frozen=True)
class Line:
    """One line of a bill. `price` names the entry of the price table; `part` says what it is needed for."""

    part: str
    price: str
    quantity: float
    usd: float


@dataclass(frozen=True)
class Bill:
    """The lines of a monthly bill; each part and price occurs once."""

    name: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def usd(self) -> float:
        """Returns the total in US dollars."""
        return sum(line.usd for line in self.lines)

    def of(self, part: str, price: str) -> float:
        """Returns the amount of one line in US dollars; 0 if there is no such line."""
        return sum(line.usd for line in self.lines if (line.part, line.price) == (part, price))

    def parts(self) -> dict[str, float]:
        """Returns the sum of each part in US dollars, in the order of the lines."""
        sums: dict[str, float] = {}
        for line in self.lines:
            sums[line.part] = sums.get(line.part, 0.0) + line.usd
        return sums


@dataclass
class Ledger:
    """A collection of quantities by part and price, in the order in which they are added."""

    prices: Prices
    _held: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, part: str, price: str, quantity: float) -> None:
        """Adds a quantity to the line of this part and price."""
        self._held[part, price] = self._held.get((part, price), 0.0) + quantity

    def bill(self, name: str, notes: tuple[str, ...] = ()) -> Bill:
        """Returns the bill for the collected quantities; quantities of 0 are left out."""
        return Bill(name, tuple(self._lines()), notes)

    def _lines(self) -> Iterator[Line]:
        for (part, price), quantity in self._held.items():
            if quantity:
                yield Line(part, price, quantity, self.prices[price].of(quantity))
