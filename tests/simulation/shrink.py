"""A smaller plan that breaks the same law: operations and faults are left out as long as it still does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.simulation.mutant import Mutant
from tests.simulation.plan import Plan
from tests.simulation.run import Verdict, run

T = TypeVar("T")


def smallest(verdict: Verdict, mutant: Mutant | None = None, *, seconds: float = 60) -> Verdict:
    """Returns the verdict of a small plan that fails as `verdict` did, with its trace."""
    until = time.monotonic() + seconds
    law, plan = verdict.law, verdict.plan

    def fails(candidate: Plan) -> bool:
        return time.monotonic() < until and run(candidate, mutant).law == law

    begun = plan.with_ops(tuple(op for op in plan.ops if op.id in verdict.started))
    if fails(begun):
        plan = begun
    plan = plan.with_ops(tuple(_fewest(plan.ops, lambda ops: fails(plan.with_ops(tuple(ops))))))
    struck = run(plan, mutant).struck
    needed = set(_fewest(struck, lambda kept: fails(replace(plan, calm=frozenset(struck) - frozenset(kept)))))
    plan = replace(plan, calm=frozenset(struck) - needed)
    plan = plan.with_ops(tuple(_fewest(plan.ops, lambda ops: fails(plan.with_ops(tuple(ops))))))
    kept = {op.id for op in plan.ops}
    plan = replace(plan, calm=frozenset(one for one in plan.calm if one[0] in kept))
    return run(plan, mutant, tracing=True)


def _fewest(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Leaves out ever smaller parts of `items` while the rest still fails."""
    size = max(1, len(items) // 2)
    while True:
        at = 0
        while at < len(items):
            rest = [*items[:at], *items[at + size :]]
            if fails(rest):
                items = rest
            else:
                at += size
        if size == 1:
            return items
        size = max(1, size // 2)
