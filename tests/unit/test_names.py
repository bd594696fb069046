"""Names of streams: accepted as they are, or refused."""

from __future__ import annotations

import pytest

from headrace.errors import InvalidRequest
from headrace.streams.values import RESERVED_SEGMENTS, check_name


@pytest.mark.parametrize(
    "name",
    ["a", "a/b", "/a", "a//b", "a/", "..", "ü/日本", "\U0001f600", " ", "%2F", "_schema/a", "é" * 512, "__dsx"],
)
def test_a_name_is_what_it_is(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "a\0b", "a\nb", "\x7f", "\x1f", "\x80", "a\x9b31m", "\x9f", "\ud800", "é" * 512 + "a", "a" * 1025],
)
def test_a_name_that_can_not_be_stored_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_name(name)


@pytest.mark.parametrize("segment", sorted(RESERVED_SEGMENTS))
def test_a_name_never_hides_behind_a_sub_resource(segment: str) -> None:
    for name in (segment, f"a/{segment}"):
        with pytest.raises(InvalidRequest):
            check_name(name)


def test_the_subscription_prefix_is_reserved() -> None:
    with pytest.raises(InvalidRequest):
        check_name("__ds/subscriptions/x")
