"""Targets of feature tables: expressions, keys of rows, and frames of beava's TCP transport."""

from __future__ import annotations

import asyncio
import math
import struct
from itertools import product
from types import SimpleNamespace
from typing import Any

from headrace.features.errors import KeyRefused
from headrace.features.pipeline import keys
from headrace.features.pipeline.expr import compile_expression
from headrace.features.pipeline.scalar import MAX_I64, MIN_I64
from headrace.features.pipeline.syntax import ExpressionError
from local.beava import ERROR, OPERATIONS, Frames

_TYPES = {"n": "i64", "x": "f64", "s": "str", "ok": "bool", "j": "json", "at": "datetime"}
_ROWS: tuple[dict[str, Any], ...] = (
    {"n": 7, "x": 2.5, "s": "b", "ok": True, "j": {"k": 1}, "at": "2026-01-01T00:00:00Z"},
    {"n": MIN_I64, "x": 1e308, "s": "", "ok": False, "j": [], "at": "2026-01-01T00:00:00Z"},
    dict.fromkeys(_TYPES),
)
_CLASSES = {"i64": int, "f64": float, "str": str, "bool": bool, "datetime": str}
_HEAD = struct.Struct(">IHB")


def expressions(data: bytes) -> None:
    """What compiles has a value of its type for every row, or none."""
    text = data.decode("utf-8", "replace")
    for strict, row in product((True, False), _ROWS):
        try:
            compiled = compile_expression(text, _TYPES, ("Txn",), strict=strict)
        except ExpressionError:
            continue
        value = compiled.evaluate(row)
        if value is None or compiled.type == "json":
            continue
        assert value.__class__ is _CLASSES[compiled.type], (compiled.type, value)
        assert value.__class__ is not int or MIN_I64 <= value <= MAX_I64, value
        assert value.__class__ is not float or math.isfinite(value), value


def entity_keys(data: bytes) -> None:
    """Two keys have one row if their values are equal, and else two; a list of the values is the same key."""
    texts = [half.decode("utf-8", "replace") for half in data.split(b"\n", 1)]
    for types in product(("str", "i64", "f64", "bool"), repeat=texts[0].count("|") % 2 + 1):
        found = set[tuple[Any, ...]]()
        for text in texts:
            try:
                found.add(keys.parse(text, types))
            except KeyRefused:
                continue
        for values in found:
            assert keys.parse(list(values), types) == values
        stored = {keys.encode(values) for values in found}
        assert len(stored) == len(found), found
        assert all(0 < len(one.encode()) <= keys.MAX_ENTITY_BYTES for one in stored)


def beava_frames(data: bytes) -> None:
    """Each frame is answered by a frame, until one has no length that can be."""

    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'{"a":1}'})

    sent = bytearray()

    async def drain() -> None:
        return None

    async def run() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        writer: Any = SimpleNamespace(write=sent.extend, drain=drain, close=lambda: None)
        await Frames(app).serve(reader, writer)

    asyncio.run(run())
    answers = {ERROR, *(one.answer for one in OPERATIONS.values())}
    left = bytes(sent)
    while left:
        length, operation, kind = _HEAD.unpack_from(left)
        assert operation in answers, operation
        assert kind in (1, 2), kind
        assert len(left) >= length + 4, length
        left = left[length + 4 :]
