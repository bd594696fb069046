"""Converts JSON between bytes and Python values.

Integers of any size are kept (a double holds them only to 2^53), and so is the order of keys. Fractions become doubles.
Of msgspec, orjson and the standard library, only msgspec is both fast and exact for large integers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import InvalidRequest

# Documents are walked by recursion, here and in libraries: the validator's own limit is 255 levels.
MAX_DEPTH = 200

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


def loads(data: bytes) -> Any:
    """Parses a JSON text. If an object has a key twice, the last one counts.

    Raises:
        InvalidRequest: the text is not JSON (RFC 8259) in UTF-8, has an unpaired surrogate or a number beyond a double,
            or is nested deeper than `MAX_DEPTH`.
    """
    try:
        value = _decoder.decode(data)
    except msgspec.DecodeError as exc:
        raise InvalidRequest(f"not valid JSON: {exc}") from exc
    except UnicodeDecodeError as exc:
        raise InvalidRequest("not valid JSON: it is not UTF-8") from exc
    except RecursionError as exc:
        raise InvalidRequest(f"JSON is nested too deeply: limit={MAX_DEPTH}") from exc
    # Counting brackets costs nothing next to parsing, and most documents have too few to be deep.
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and not _is_shallow(value):
        raise InvalidRequest(f"JSON is nested too deeply: limit={MAX_DEPTH}")
    return value


def dumps(value: Any) -> bytes:
    """Writes a value as compact JSON, with keys in their order and non-ASCII text unescaped. Accepts the values that
    `loads` returns.
    """
    return _encoder.encode(value)


def _is_shallow(value: Any) -> bool:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
    return not level
