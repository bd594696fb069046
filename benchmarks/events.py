"""Deterministic events of 270 to 460 bytes: the same number always gives the same bytes."""

from __future__ import annotations

import hashlib

import orjson

LEVELS = ("info", "info", "info", "info", "warn", "error")
SERVICES = ("checkout", "catalog", "payments", "search", "accounts", "shipping", "web", "gateway")
METHODS = ("GET", "POST", "PUT", "DELETE")
WORDS = [
    "request",
    "accepted",
    "payment",
    "refused",
    "upstream",
    "timed",
    "out",
    "cache",
    "miss",
    "retry",
    "scheduled",
    "order",
    "placed",
    "session",
    "expired",
    "item",
    "reserved",
    "stock",
    "low",
    "index",
    "refreshed",
    "queue",
    "drained",
    "lease",
    "renewed",
    "token",
    "rotated",
]

START_MS = 1_767_225_600_000


def event(number: int) -> bytes:
    """Event `number` as compact JSON."""
    seed = hashlib.blake2b(number.to_bytes(8, "big"), digest_size=32).digest()
    message = " ".join(WORDS[byte % len(WORDS)] for byte in seed[: 4 + seed[31] % 23])
    return orjson.dumps(
        {
            "id": number,
            "timestamp": START_MS + number * 17,
            "level": LEVELS[seed[0] % len(LEVELS)],
            "service": SERVICES[seed[1] % len(SERVICES)],
            "method": METHODS[seed[2] % len(METHODS)],
            "path": f"/v1/{SERVICES[seed[3] % len(SERVICES)]}/{int.from_bytes(seed[4:6], 'big')}",
            "status": 200 + seed[5] % 4 * 100,
            "duration": int.from_bytes(seed[6:8], "big") / 16,
            "requestId": seed[8:24].hex(),
            "traceId": seed[16:32].hex(),
            "message": message,
        }
    )


def body(first: int, count: int) -> bytes:
    """Events `first` to `first + count - 1` as one JSON array."""
    return b"[" + b",".join(event(number) for number in range(first, first + count)) + b"]"
