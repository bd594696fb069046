"""JSON values that bytes choose from a vocabulary, and edits of a valid document: the fuzzer need not spell keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

MAX_EDITS = 8
_MAX_PLACES = 512  # a larger document is edited no further: an edit that copies all of it into one place doubles it
_DEPTH = 5

Slot = tuple[dict[str, Any] | list[Any], Any]


def value(data: bytes, words: Sequence[Any], keys: Sequence[str]) -> Any:
    """Returns a value of scalars from `words`, in arrays and in objects with `keys`."""
    return _value(iter(data), words, keys, 0)


def _value(choices: Iterator[int], words: Sequence[Any], keys: Sequence[str], depth: int) -> Any:
    choice = next(choices, 0)
    kind, width = choice % 4, choice // 4 % 8
    if kind < 2 or depth == _DEPTH:
        return words[next(choices, 0) % len(words)]
    if kind == 2:
        return [_value(choices, words, keys, depth + 1) for _ in range(width)]
    return {
        keys[next(choices, 0) % len(keys)]: _value(choices, words, keys, depth + 1)
        for _ in range(min(width, len(keys)))
    }


def edited(document: Any, edits: bytes, words: Sequence[Any], keys: Sequence[str]) -> Any:
    """Returns a copy of a document with edits, each of three bytes: the place, what is done, and with what.

    A place's value is replaced by a word, left out, wrapped in an array, or replaced by a value from elsewhere; a member
    gets another key; a word is put beside it under a key.
    """
    whole = {"": _copy(document)}
    for at in range(0, min(len(edits), 3 * MAX_EDITS) - 2, 3):
        place, action, choice = edits[at : at + 3]
        slots = _slots(whole)
        if len(slots) > _MAX_PLACES:
            break
        owner, key = slots[place % len(slots)]
        word, name = _copy(words[choice % len(words)]), keys[choice % len(keys)]
        match action % 6:
            case 0:
                owner[key] = word
            case 1 if owner is not whole:
                del owner[key]
            case 2:
                owner[key] = [owner[key]]
            case 3:
                other, other_key = slots[choice % len(slots)]
                owner[key] = _copy(other[other_key])
            case 4 if isinstance(owner, dict) and owner is not whole:
                owner[name] = owner.pop(key)
            case 5 if isinstance(owner, dict) and owner is not whole:
                owner[name] = word
            case 5 if isinstance(owner, list):
                owner.append(word)
    return whole[""]


def _slots(whole: dict[str, Any]) -> list[Slot]:
    """Returns every place in a document, with what holds it: a container's own places after those beside it."""
    found: list[Slot] = []
    containers: list[dict[str, Any] | list[Any]] = [whole]
    for container in containers:
        keyed = container.items() if isinstance(container, dict) else enumerate(container)
        for key, child in keyed:
            found.append((container, key))
            if isinstance(child, (dict, list)):
                containers.append(child)
    return found


def _copy(value: Any) -> Any:
    """As copy.deepcopy, for JSON, and faster."""
    if isinstance(value, dict):
        return {key: _copy(child) for key, child in value.items()}
    return [_copy(child) for child in value] if isinstance(value, list) else value
