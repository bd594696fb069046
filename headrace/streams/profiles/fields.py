"""Helpers to declare the search fields of profiles: all have version 1, and each is bound to one JSON pointer."""

from __future__ import annotations

from typing import Any

TYPED = ("exact", "column", "exists", "sortable")


def keyword(pointer: str, *capabilities: str, lowercase: bool = False) -> dict[str, Any]:
    """Returns a keyword field with `exact`, `exists` and the named capabilities."""
    normalizer = {"normalizer": "lowercase_v1"} if lowercase else {}
    return _field("keyword", pointer, normalizer, ("exact", *capabilities, "exists"))


def text(pointer: str) -> dict[str, Any]:
    """Returns a text field with words and positions."""
    return _field("text", pointer, {"analyzer": "unicode_word_v1"}, ("exists", "positions"))


def typed(kind: str, pointer: str, *capabilities: str) -> dict[str, Any]:
    """Returns a date, integer or float field with `exact`, `column`, `exists`, `sortable` and the named
    capabilities.
    """
    return _field(kind, pointer, {}, (*TYPED, *capabilities))


def _field(kind: str, pointer: str, settings: dict[str, str], capabilities: tuple[str, ...]) -> dict[str, Any]:
    bindings = [{"version": 1, "jsonPointer": pointer}]
    return {"kind": kind, "bindings": bindings, **settings, **dict.fromkeys(capabilities, True)}
