"""The errors that only requests to subscriptions have.

InvalidSubscription    the request is malformed
└── WebhookUrlRejected its URL must not be called
NoSubscription         no subscription has this id
SubscriptionExists     the id has another configuration
AlreadyClaimed         another worker holds the wake
NoPendingWork          no stream has data past its cursor
Fenced                 the wake has ended, or another one is current
InvalidOffset          an ack names no link, or a position that its stream does not have
TokenInvalid           the token is missing or unknown
"""

from __future__ import annotations

from headrace.errors import Conflict, HeadraceError, InvalidRequest, NotFound


class InvalidSubscription(InvalidRequest):
    """The request is malformed, or does not fit the type of the subscription."""

    code = "INVALID_REQUEST"


class WebhookUrlRejected(InvalidSubscription):
    """The URL of a webhook must not be called: it is not https, or its host is not public."""

    code = "WEBHOOK_URL_REJECTED"


class NoSubscription(NotFound):
    """No subscription has this id."""

    code = "SUBSCRIPTION_NOT_FOUND"

    def __init__(self, id_: str) -> None:
        super().__init__(f"subscription not found: id={id_}")


class SubscriptionExists(Conflict):
    """A subscription with this id has another configuration."""

    code = "SUBSCRIPTION_ALREADY_EXISTS"

    def __init__(self, id_: str) -> None:
        super().__init__(f"subscription exists with another configuration: id={id_}")


class AlreadyClaimed(Conflict):
    """A worker holds the wake.

    Attributes:
        holder: the worker.
        generation: the wake's generation.
    """

    code = "ALREADY_CLAIMED"

    def __init__(self, holder: str, generation: int) -> None:
        super().__init__(f"wake is claimed: holder={holder} generation={generation}")
        self.holder = holder
        self.generation = generation


class NoPendingWork(Conflict):
    """No stream of the subscription has data past its cursor."""

    code = "NO_PENDING_WORK"

    def __init__(self) -> None:
        super().__init__("no stream has data past its cursor")


class Fenced(Conflict):
    """The wake has ended, or another one is current; nothing was changed."""

    code = "FENCED"

    def __init__(self) -> None:
        super().__init__("this wake is no longer current")


class InvalidOffset(Conflict):
    """An ack names a stream that the subscription does not have, or a position before its cursor or after its tail."""

    code = "INVALID_OFFSET"


class TokenInvalid(HeadraceError):
    """The token of a wake is missing, malformed or unknown."""

    code = "TOKEN_INVALID"

    def __init__(self) -> None:
        super().__init__("the token is missing or not one of this subscription's recent wakes")
