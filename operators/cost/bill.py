"""A bill: lines of quantity times price, and the sums that are drawn from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from operators.cost.prices import Prices


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
        """The sum."""
        return sum(line.usd for line in self.lines)

    def of(self, part: str, price: str) -> float:
        """US dollars of one line; 0 if there is none."""
        return sum(line.usd for line in self.lines if (line.part, line.price) == (part, price))

    def parts(self) -> dict[str, float]:
        """US dollars of each part, in the order of the lines."""
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
        """More of something."""
        self._held[part, price] = self._held.get((part, price), 0.0) + quantity

    def bill(self, name: str, notes: tuple[str, ...] = ()) -> Bill:
        """What was added, priced. What there is nothing of is left out."""
        return Bill(name, tuple(self._lines()), notes)

    def _lines(self) -> Iterator[Line]:
        for (part, price), quantity in self._held.items():
            if quantity:
                yield Line(part, price, quantity, self.prices[price].of(quantity))
