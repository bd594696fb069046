"""The events of the loads, and the tables that they feed."""

from __future__ import annotations

from typing import Any

from benchmarks import operators
from tests.unit.features.world import event, table

USERS = 1_000
FIELDS = {"user": "str", "merchant": "str", "amount": "f64", "id": "str"}
EVENT = event(fields=FIELDS, optional=["id"])
DEDUPED = event(fields=FIELDS, optional=["id"], dedupe_key="id")
SCALARS = table(
    count=("count", {"window": "1h"}),
    sum=("sum", {"field": "amount", "window": "1h"}),
    min=("min", {"field": "amount", "window": "1h"}),
    max=("max", {"field": "amount", "window": "1h"}),
)
"""The table of one user, with four numbers in a window."""
MIXED = table(
    count=("count", {"window": "1h"}),
    sum=("sum", {"field": "amount", "window": "1h"}),
    mean=("mean", {"field": "amount", "window": "24h"}),
    max=("max", {"field": "amount"}),
    merchants=("n_unique", {"field": "merchant"}),
    p90=("quantile", {"field": "amount", "q": 0.9}),
    top=("top_k", {"field": "merchant", "k": 3}),
    last=("last", {"field": "amount"}),
)
"""The table of one user, with eight features of different kinds."""


def data(number: int, users: int = USERS) -> dict[str, Any]:
    """Returns the data of event `number`: one of `users` users, one of 500 merchants, an amount of cents; about 60 bytes of
    JSON.
    """
    row = operators.row(number)
    return {"user": user(number, users), "merchant": row["merchant"], "amount": row["amount"]}


def user(number: int, users: int = USERS) -> str:
    """Returns the user of event `number`."""
    return f"user-{number * 2_246_822_519 % 4_294_967_291 % users}"
