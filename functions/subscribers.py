"""What a key must be allowed to do, so that it may use a subscription: read what the pattern can match and each stream
that is named, and write the wake stream. It is asked for with each request, and again before each wake.
"""

from __future__ import annotations

from collections.abc import Iterable

from functions.access import Access, Grant, Scope
from headrace.errors import StoreError
from headrace.subscriptions import patterns
from headrace.subscriptions.values import Config, Subscription


def require(grant: Grant, config: Config, paths: Iterable[str]) -> None:
    """Checks that a grant allows a subscription of this configuration, with these streams.

    Raises:
        Forbidden: it does not.
    """
    grant.require(Scope.READ)
    if config.pattern:
        grant.require(Scope.READ, patterns.literal_prefix(config.pattern))
    for path in paths:
        grant.require(Scope.READ, path)
    if config.wake_stream:
        grant.require(Scope.WRITE, config.wake_stream)


def refusal(access: Access, sub: Subscription, paths: Iterable[str]) -> tuple[str, str] | None:
    """Returns why the key of a subscription does not allow a wake that tells of these streams: code and message. None if
    it does. May block.
    """
    try:
        return access.refusal(sub.key_id, lambda grant: require(grant, sub.config, paths))
    except StoreError as exc:  # it is tried again, as after a failure
        return "unavailable", str(exc)
