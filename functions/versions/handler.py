"""Removes versions of the functions that no rollback needs, once a day.

Each deployment publishes a version, and CloudFormation removes none: a version that is removed can't be rolled back to.
What the alias calls stays, and of all others the newest one, until no deployment was made for `kept_days`. That one is
what was live before, or what an alias was rolled back from.

Lambda itself refuses to delete a version that an alias names, so a rollback at the same moment is safe.

This module's text is in the template (`infra/versions.py`), so it imports nothing but what Lambda's runtime has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.session import get_session

# A bound on one run. The next one goes on.
MAX_REMOVED = 50
LATEST = "$LATEST"


def removable(
    published: Mapping[int, datetime], live: Collection[int], *, kept_days: int, now: datetime
) -> list[int]:
    """Returns the numbers of the versions to remove, the oldest first.

    Args:
        published: each version's number, and when it was published.
        live: what the alias calls; two while a canary is under way.
        kept_days: how long after the newest of all was published the one earlier version stays.
    """
    others = sorted(published.keys() - set(live))
    earlier = others[-1:] if now - max(published.values(), default=now) < timedelta(days=kept_days) else []
    return [number for number in others if number not in earlier]


def handler(event: Mapping[str, Any], _: object = None) -> dict[str, list[int]]:
    """Removes versions of each function in `event["functions"]`; returns their numbers by function.

    Raises ClientError if Lambda refuses a call. The next day's run repeats it.
    """
    client = get_session().create_client("lambda")
    now = datetime.now(UTC)
    removed: dict[str, list[int]] = {}
    for function in event["functions"]:
        live = _live(client.get_alias(FunctionName=function, Name=event["alias"]))
        published = dict(_published(client, function))
        removed[function] = removable(published, live, kept_days=event["kept_days"], now=now)[:MAX_REMOVED]
        for number in removed[function]:
            client.delete_function(FunctionName=function, Qualifier=str(number))
    print({"removed": removed})
    return removed


def _live(alias: Mapping[str, Any]) -> set[int]:
    """Returns the numbers of the versions that an alias calls."""
    weights = (alias.get("RoutingConfig") or {}).get("AdditionalVersionWeights") or {}
    return {int(number) for number in (alias["FunctionVersion"], *weights)}


def _published(client: Any, function: str) -> Iterator[tuple[int, datetime]]:
    """Yields the number of each version, and when it was published."""
    for page in client.get_paginator("list_versions_by_function").paginate(FunctionName=function):
        for version in page["Versions"]:
            if version["Version"] != LATEST:
                yield int(version["Version"]), datetime.fromisoformat(version["LastModified"])
