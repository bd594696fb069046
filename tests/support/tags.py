"""What a condition on tags means, for models: the engine asks its index instead."""

from __future__ import annotations

from headrace.topics.values import Match


def matches(match: Match | None, tag: str | None) -> bool:
    """Returns whether a record with this tag matches; one without a tag only if there is no condition."""
    if match is None:
        return True
    if tag is None:
        return False
    return tag.startswith(match.text) if match.is_prefix else tag == match.text
