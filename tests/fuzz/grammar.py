"""JSON text made of any bytes: valid, and of every shape, so that the fuzzer need not guess brackets."""

from __future__ import annotations

from collections.abc import Iterator

_DEPTH = 6
_SPACES = (b"", b" ", b"\n\t", b"\r\n  ")
_SCALARS = (
    b"null", b"true", b"false", b"0", b"-0", b"1.0", b"-1e5", b"12345678901234567890", b"1E-2", b'""', b'"a"',
    b'"\\""', b'"\\\\"', b'"],["', b'"{,}:"', b'"\\u00e9\\ud83d\\ude00"', '"é😀"'.encode(), b'" "', b'"\\n\\/"',
)  # fmt: skip
_KEYS = (b'"a"', b'""', b'"\\"}"', '"é"'.encode())


def json_text(data: bytes) -> bytes:
    """Returns the text that `data` chooses: one value, with white space around and inside."""
    return b"".join(_value(iter(data), 0))


def _value(choices: Iterator[int], depth: int) -> Iterator[bytes]:
    choice = next(choices, 0)
    space = _SPACES[choice >> 6]
    kind, width = choice & 3, (choice >> 2) % 5
    yield space
    if kind < 2 or depth == _DEPTH:
        yield _SCALARS[(choice & 0x3F) % len(_SCALARS)]
    elif kind == 2:
        yield b"["
        for at in range(width):
            yield b"," if at else b""
            yield from _value(choices, depth + 1)
        yield space + b"]"
    else:
        yield b"{"
        for at in range(width):
            yield b"," if at else b""
            yield space + _KEYS[(at + width) % len(_KEYS)] + space + b":"
            yield from _value(choices, depth + 1)
        yield space + b"}"
    yield space
