"""The features of one table: their state, and how events change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class FeatureSpec(NamedTuple):
    """One feature of a table.

    Attributes:
        name: what readers call it.
        id: the stable text under which its state is stored.
        op: the operator's name.
        params: the operator's parameters as `check_operator` normalised them.
        where: decides whether a row counts; only True does. None counts every row.
    """

    name: str
    id: str
    op: str
    params: dict[str, Any]
    where: Callable[[Mapping[str, Any]], Any] | None = None


class State:
    """The state of one row of a table. Only `FeatureSet` looks inside.

    Attributes:
        stamp_ms: the stamp of the newest event that was folded; -1 if there is none.
    """

    __slots__ = ("stamp_ms",)

    def __init__(self) -> None:
        self.stamp_ms = -1


def check_operator(op: str, params: dict[str, Any], types: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Checks one aggregation against the fields' types.

    Args:
        op: the operator's name.
        params: its parameters, without `where`.
        types: the type of each field that the aggregation can see.

    Returns:
        The type of the result, and the parameters in their normal form: durations in ms, defaults filled in.

    Raises:
        OperatorError: with the contract's code, the offending parameter and the reason.
    """
    raise NotImplementedError


class FeatureSet:
    """The features of one table."""

    def __init__(self, specs: Sequence[FeatureSpec]) -> None:
        self._specs = tuple(specs)
        self.max_bytes = 0
        """The worst case of `encode`, in bytes, uncompressed."""
        self.longest_window_ms: int | None = None
        """The longest window; None if some feature has none."""

    def new(self) -> State:
        """Returns the state before any event."""
        raise NotImplementedError

    def fold(self, state: State, row: Mapping[str, Any], stamp_ms: int, lane: int, offset: int) -> None:
        """Adds an event to the state, in place. Events come in the order of (stamp, lane, offset)."""
        raise NotImplementedError

    def read(self, state: State, now_ms: int, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Returns the values as of `now_ms`, as JSON values, in the order of the specs or of `names`."""
        raise NotImplementedError

    def copy(self, state: State) -> State:
        """Returns a state that shares nothing with this one."""
        raise NotImplementedError

    def encode(self, state: State) -> bytes:
        """Returns the state as msgpack."""
        raise NotImplementedError

    def decode(self, data: bytes) -> State:
        """Returns the encoded state; features that it doesn't have start empty, features unknown here are dropped."""
        raise NotImplementedError
