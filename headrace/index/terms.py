"""The terms of `kw` and `fts`: bytes, one namespace for all fields of a run, sorted as bytes.

    field 00 text     a canonical value of a field in print, or a word of a text field
    01 field          the field has a value
    02 field          the field has values that the families can't hold exactly

A field's name holds no byte below 2D, so that no term means two things and a prefix stays within its field.
"""

from __future__ import annotations

from headrace.query.language import canonical

CUT = 128  # bytes of a sort key that a descriptor keeps: longer than any field's name

_HAS = b"\x01"
_LOSSY = b"\x02"
_END = b"\x00"


def value_term(field: str, value: str | int | float | bool) -> bytes:
    """Of the records in which a field has this canonical value."""
    return word_term(field, canonical.text(value))


def word_term(field: str, word: str) -> bytes:
    """Of the records in which a text field has this word; also of a value that is in print already."""
    return field.encode() + _END + text_bytes(word)


def prefix_term(field: str, text: str) -> bytes:
    """Where the terms of a field begin that begin with a text; they end before `after(…)` of it."""
    return word_term(field, text)


def has_term(field: str) -> bytes:
    """Of the records in which a field has a value: of text fields in `fts`, of all others in `kw`."""
    return _HAS + field.encode()


def lossy_term(field: str) -> bytes:
    """Of the records that must be looked at by whoever asks for this field; in `kw`."""
    return _LOSSY + field.encode()


def text_of(term: bytes) -> str:
    """The value or word of a `value_term` or a `word_term`."""
    return term.partition(_END)[2].decode("utf-8", "surrogatepass")


def after(prefix: bytes) -> bytes:
    """The least bytes above everything that begins with `prefix`, which begins with a byte below FF.

    Raises:
        ValueError: nothing is above.
    """
    kept = prefix.rstrip(b"\xff")
    if not kept:
        raise ValueError(f"no bytes are above: prefix={prefix!r}")
    return kept[:-1] + bytes([kept[-1] + 1])


def text_bytes(text: str) -> bytes:
    """UTF-8, lone surrogates too: the order of bytes is that of code points."""
    return text.encode("utf-8", "surrogatepass")


def cut(term: bytes) -> bytes:
    """The part of a sort key that a descriptor keeps."""
    return term[:CUT]
