"""Snippets: short pieces of a hit's texts around what a query asks for. Pure; made of the hits of a page alone.

A piece begins and ends between words where it can. The one with the most distinct words of the query is the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.errors import InvalidRequest
from headrace.query.language import canonical
from headrace.query.language.canonical import SearchConfig
from headrace.query.language.query import And, Anywhere, Contains, Equals, Node, Or, Prefix, Words

_MEMBERS = ("enabled", "fields", "fragment_size", "max_fragments")
_SIZES, _FRAGMENTS = (20, 1000), (1, 5)
_DEFAULT_SIZE, _DEFAULT_FRAGMENTS = 160, 1
_MAX_FIELDS = 16
_MAX_MATCHES = 1000  # in one text: those of a longer one begin it


class SnippetRequest(NamedTuple):
    """Which pieces a search asks for.

    Attributes:
        fields: the fields whose texts are shown; empty for all that the query asks for words or pieces of.
        size: the most characters of a piece.
        most: the most pieces of a field.
    """

    fields: tuple[str, ...] = ()
    size: int = _DEFAULT_SIZE
    most: int = _DEFAULT_FRAGMENTS


class Wanted(NamedTuple):
    """What is looked for in a field: a word, the beginning of one, or any piece of text; in lower case."""

    text: str
    is_word: bool
    is_prefix: bool = False


def parse(asked: Any, config: SearchConfig) -> SnippetRequest | None:
    """Parses the member `snippet` of a request: true, or an object; None if no snippets are asked for.

    Raises:
        InvalidRequest: it is malformed, or names a field that is no text.
    """
    if asked is None or asked is False:
        return None
    if asked is True:
        return SnippetRequest()
    if not isinstance(asked, dict):
        raise InvalidRequest("snippet must be true or an object")
    for name in asked:
        if name not in _MEMBERS:
            raise InvalidRequest(f"snippet has an unknown member: {name[:64]}")
    if asked.get("enabled", True) is not True:
        if asked["enabled"] is False:
            return None
        raise InvalidRequest("snippet.enabled must be true or false")
    return SnippetRequest(
        fields=_fields(asked.get("fields", []), config),
        size=_number(asked, "fragment_size", _DEFAULT_SIZE, _SIZES),
        most=_number(asked, "max_fragments", _DEFAULT_FRAGMENTS, _FRAGMENTS),
    )


def _number(asked: Mapping[str, Any], name: str, default: int, bounds: tuple[int, int]) -> int:
    value = asked.get(name, default)
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        raise InvalidRequest(f"snippet.{name} must be an integer from {bounds[0]} to {bounds[1]}")
    return value


def _fields(names: Any, config: SearchConfig) -> tuple[str, ...]:
    if not isinstance(names, list) or len(names) > _MAX_FIELDS or not all(isinstance(one, str) for one in names):
        raise InvalidRequest(f"snippet.fields must be an array of at most {_MAX_FIELDS} texts")
    found = [config.resolve(name) for name in names]
    for name, field in zip(names, found, strict=True):
        if field is None or config.fields[field].kind not in ("text", "keyword"):
            raise InvalidRequest(f"snippet has a field that is no text: {name[:64]}")
    return tuple(dict.fromkeys(field for field in found if field is not None))


def snippets(request: SnippetRequest, node: Node, texts: Callable[[str], Iterable[str]]) -> dict[str, list[str]]:
    """Returns the pieces of a hit's texts, by field; a field without any is left out.

    Args:
        texts: returns the texts of a field of the hit.
    """
    wanted = _wanted(node)
    shown: dict[str, list[str]] = {}
    for field in request.fields or wanted:
        looked_for = wanted.get(field) or (
            [one for some in wanted.values() for one in some] if request.fields else []
        )
        pieces = [piece for text in texts(field) for piece in pieces_of(text, looked_for, request.size, request.most)]
        if pieces:
            shown[field] = pieces[: request.most]
    return shown


def _wanted(node: Node) -> dict[str, list[Wanted]]:
    """Returns what a query looks for, by field, except behind NOT. Comparisons and `has:` look for no text."""
    found: dict[str, list[Wanted]] = {}

    def visit(part: Node) -> None:
        if isinstance(part, And | Or):
            for one in part.parts:
                visit(one)
        elif isinstance(part, Anywhere):
            for option in part.options:
                visit(option)
        elif isinstance(part, Words):
            *whole, last = part.words
            words = [*(Wanted(word, True) for word in whole), Wanted(last, True, part.prefix)]
            found.setdefault(part.field, []).extend(words)
        elif isinstance(part, Contains):
            found.setdefault(part.field, []).append(Wanted(part.text, False))
        elif isinstance(part, Prefix) or (isinstance(part, Equals) and isinstance(part.value, str)):
            found.setdefault(part.field, []).append(Wanted(str(part.value).lower(), False))

    visit(node)
    return found


def pieces_of(text: str, wanted: Sequence[Wanted], size: int, most: int) -> list[str]:
    """Returns up to `most` pieces of a text, in its order, that hold something that is wanted."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter that has no small form of its length: places would not fit
        text = lower
    matches = _matches(lower, wanted)
    chosen: list[tuple[int, int]] = []
    while matches and len(chosen) < most:
        at = max(range(len(matches)), key=lambda one: (_distinct(matches, one, size), -one))
        begin, end = _window(text, matches[at][0], matches[at][1], size)
        chosen.append((begin, end))
        matches = [one for one in matches if one[1] <= begin or one[0] >= end]
    return [
        f"{'…' if begin else ''}{text[begin:end].strip()}{'…' if end < len(text) else ''}"
        for begin, end in sorted(chosen)
    ]


def _matches(lower: str, wanted: Sequence[Wanted]) -> list[tuple[int, int, str]]:
    """Returns where what is wanted begins and ends, ascending, and which it is."""
    found: set[tuple[int, int, str]] = set()
    words = {one.text for one in wanted if one.is_word and not one.is_prefix}
    begins = tuple(one.text for one in wanted if one.is_prefix)
    if words or begins:
        for match in canonical.find_words(lower):
            if match[0] in words:
                found.add((match.start(), match.end(), match[0]))
            elif begins and match[0].startswith(begins):
                found.add((match.start(), match.end(), next(one for one in begins if match[0].startswith(one))))
            if len(found) >= _MAX_MATCHES:
                break
    for one in wanted:
        at = -1 if one.is_word or not one.text else lower.find(one.text)
        while at >= 0 and len(found) < 2 * _MAX_MATCHES:
            found.add((at, at + len(one.text), one.text))
            at = lower.find(one.text, at + len(one.text))
    return sorted(found)


def _distinct(matches: Sequence[tuple[int, int, str]], first: int, size: int) -> int:
    """Returns how many different things a piece holds that begins with a match."""
    seen: set[str] = set()
    for _, end, what in matches[first : first + 64]:
        if end > matches[first][0] + size:
            break
        seen.add(what)
    return len(seen)


def _window(text: str, begin: int, end: int, size: int) -> tuple[int, int]:
    """Returns the bounds of a piece that begins a little before a match, between words if there is white space near."""
    start = max(0, min(begin - size // 4, len(text) - size))
    if 0 < start < begin:
        space = next((at for at in range(start, begin) if text[at].isspace()), None)
        start = start if space is None else space
    stop = min(len(text), start + size)
    if stop < len(text):
        space = next((at for at in range(stop, max(end, start + size // 2), -1) if text[at - 1].isspace()), None)
        stop = stop if space is None else space - 1
    return start, max(stop, min(len(text), end, start + size))
