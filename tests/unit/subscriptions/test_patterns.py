"""Globs match by whole segments."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.subscriptions.patterns import literal_prefix, literal_segments, matches, split


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("a/*", "a/b", True),
        ("a/*", "a", False),
        ("a/*", "a/b/c", False),
        ("a/*", "a/", False),
        ("a/**", "a", True),
        ("a/**", "a/b/c", True),
        ("a/**", "ab", False),
        ("**", "x/y/z", True),
        ("**/z", "z", True),
        ("**/z", "x/y/z", True),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/z/z", True),
        ("a/**/b/*/c", "a/b/b/x/c", True),
        ("a/**/b/*/c", "a/b/x/y/c", False),
        ("a/b*", "a/bc", False),
        ("a/b*", "a/b*", True),
        ("a/%2A", "a/*", True),
        ("a/%2A", "a/b", False),
        ("a/b%20c", "a/b c", True),
        ("A/*", "a/b", False),
        ("a", "a", True),
        ("*", "a", True),
        ("*/**", "a", True),
    ],
)
def test_a_pattern_matches_by_whole_segments(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, name) is expected


def _naive(globs: tuple[str | None, ...], segments: tuple[str, ...]) -> bool:
    if not globs:
        return not segments
    if globs[0] is None:
        return any(_naive(globs[1:], segments[taken:]) for taken in range(len(segments) + 1))
    return bool(segments) and globs[0] in ("", segments[0]) and _naive(globs[1:], segments[1:])


@given(
    st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=6),
    st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=6),
)
def test_it_agrees_with_the_naive_search(globs: list[str], segments: list[str]) -> None:
    pattern, name = "/".join(globs), "/".join(segments)
    assert matches(pattern, name) == _naive(split(pattern), tuple(segments))
    if matches(pattern, name):
        assert name.startswith(literal_prefix(pattern))
        literal = literal_segments(pattern)
        assert segments[: len(literal)] == literal


def test_many_wildcards_take_no_exponential_time() -> None:
    pattern = "/".join(itertools.chain(*(("**", "a") for _ in range(200)), ["b"]))
    assert not matches(pattern, "/".join(["a"] * 500))


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [("a/b/*", "a/b/"), ("a/**", "a"), ("*/a", ""), ("**", ""), ("a/b", "a/b"), ("%2A/*", "*/")],
)
def test_its_literal_prefix_begins_every_match(pattern: str, prefix: str) -> None:
    assert literal_prefix(pattern) == prefix


@pytest.mark.parametrize("pattern", ["", "a//b", "/a", "a/", "a/%ff"])
def test_empty_segments_and_broken_escapes_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError):
        split(pattern)
