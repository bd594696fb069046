"""The followers of kind `router`: a visit is one step of the router (`headrace.routers.steps`)."""

from __future__ import annotations

from functions.relay.context import Context
from functions.relay.followers import Hint
from headrace.queues.verbs import Queues
from headrace.routers.steps import Stepper
from headrace.tables.follows import Follow


class RouterFollower:
    """Forwards records of topics."""

    def __init__(self, context: Context) -> None:
        stores = context.stores
        self._stepper = Stepper(stores, Queues(stores), context.kick)

    def visit(self, follow: Follow, hint: Hint) -> float | None:  # noqa: ARG002 - an end may be a dead item, too
        """Takes a step of one router."""
        return self._stepper.visit(follow)
