"""Globs over stream names: `*` is one segment, `**` zero or more, and anything else is the segment itself. Percent escapes
in a pattern are decoded, so `%2A` is a literal `*`. Matching is by whole segments, and case-sensitive.
"""

from __future__ import annotations

from itertools import takewhile
from urllib.parse import unquote

ONE = "*"
ANY = "**"


def split(pattern: str) -> tuple[str | None, ...]:
    """Parses a pattern into segments as `matches` takes them: None is `**`, the empty string is `*`.

    Raises:
        ValueError: a segment is empty, or its escapes are not UTF-8.
    """
    parsed: list[str | None] = []
    for segment in pattern.split("/"):
        if not segment:
            raise ValueError("a segment is empty")
        if segment == ANY:
            if not parsed or parsed[-1] is not None:  # a second one in a row adds nothing
                parsed.append(None)
        else:
            parsed.append("" if segment == ONE else unquote(segment, errors="strict"))
    return tuple(parsed)


def matches(pattern: str, name: str) -> bool:
    """Returns whether a valid pattern matches a name. Takes time in proportion to the product of their segments."""
    globs, segments = split(pattern), name.split("/")
    at = position = 0
    resume: tuple[int, int] | None = None  # after the last `**`, and the segment that it takes next if the rest fails
    while position < len(segments):
        if at < len(globs) and globs[at] is None:
            resume = (at := at + 1), position
        elif at < len(globs) and _fits(globs[at], segments[position]):
            at, position = at + 1, position + 1
        elif resume is not None:
            resume = resume[0], resume[1] + 1
            at, position = resume
        else:
            return False
    return all(glob is None for glob in globs[at:])


def _fits(glob: str | None, segment: str) -> bool:
    return bool(segment) if glob == "" else glob == segment


def literal_prefix(pattern: str) -> str:
    """Returns the text with which every name begins that the pattern matches. `a/**` matches `a`, too."""
    prefix: list[str] = []
    for glob in split(pattern):
        if not glob:
            return "/".join(prefix) + ("/" if prefix and glob == "" else "")
        prefix.append(glob)
    return "/".join(prefix)


def literal_segments(pattern: str) -> list[str]:
    """Returns the segments with which every name begins that the pattern matches; none if it begins with a wildcard."""
    return [segment for segment in takewhile(bool, split(pattern)) if segment]
