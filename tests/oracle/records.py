"""Records with everything that has gone wrong in some search engine, and the configuration to find them by.

Mixed case and scripts, prefixes of more than a thousand terms, null, arrays in arrays, values of a wrong kind, numbers
beyond 64 bits. Sums are exact in any order: measures are multiples of a quarter.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.oracle.queries import Compares, Has, Query

FIRST = datetime(2026, 1, 1, 22, 30, tzinfo=UTC)
SPAN_MS = 3 * 3_600_000


def field(kind: str, pointer: str, capabilities: str, **more: str) -> dict[str, Any]:
    bindings = [{"version": 1, "jsonPointer": pointer}]
    return {"kind": kind, "bindings": bindings, **dict.fromkeys(capabilities.split(), True), **more}


SEARCH: dict[str, Any] = {
    "primaryTimestampField": "at",
    "aliases": {"svc": "service", "when": "at"},
    "defaultFields": [{"field": "note", "boost": 2}, {"field": "title"}, {"field": "service", "boost": 3}],
    "fields": {
        "at": field("date", "/at", "exact column exists sortable"),
        "ref": field("keyword", "/ref", "exact prefix exists sortable"),
        "service": field("keyword", "/service", "exact prefix exists sortable", normalizer="lowercase_v1"),
        "code": field("keyword", "/code", "exact prefix exists sortable"),
        "status": field("integer", "/status", "exact column exists sortable"),
        "cost": field("float", "/cost", "exact column exists sortable aggregatable"),
        "size": field("integer", "/size", "column exists aggregatable"),
        "paid": field("bool", "/paid", "exact column exists sortable"),
        "tag": field("keyword", "/tags", "exact prefix exists"),
        "seen": field("keyword", "/seen", "exists"),
        "deep": field("keyword", "/in/deep~1er", "exact"),
        "note": field("text", "/note", "exists positions", analyzer="unicode_word_v1"),
        "title": field("text", "/title", "exists", analyzer="unicode_word_v1"),
    },
    "rollups": {
        "requests": {
            "dimensions": ["service", "paid"],
            "intervals": ["1m", "1h"],
            "measures": {
                "requests": {"kind": "count"},
                "dear": {"kind": "count", "include": "cost:>4"},
                "cost": {"kind": "summary", "field": "cost", "histogram": "log2_v1"},
                "size": {"kind": "summary", "field": "size"},
            },
        },
        "all": {"intervals": ["10m"], "measures": {"records": {"kind": "count"}}},
        "codes": {
            "include": "has:paid",
            "dimensions": ["code", "status"],
            "intervals": ["30m"],
            "measures": {"records": {"kind": "count"}},
        },
        "parts": {
            "dimensions": ["service"],
            "intervals": ["1h"],
            "measures": {
                "load": {
                    "kind": "summary_parts",
                    "countJsonPointer": "/load/count",
                    "sumJsonPointer": "/load/sum",
                    "minJsonPointer": "/load/min",
                    "maxJsonPointer": "/load/max",
                    "histogramJsonPointer": "/load/histogram",
                }
            },
        },
    },
}
INCLUDES: dict[str, Query] = {"cost:>4": Compares("cost", ">", "4"), "has:paid": Has("paid")}
ROUTING_KEY = {"jsonPointer": "/key", "required": False}
RENAMED = {"title": "headline", "ref": "reference"}  # what the lens renames, both required

WORDS = ["card", "accepted", "declined", "Payment", "payments", "gateway", "timeout", "Zürich", "été", "ночь", "日本"]
WORDS += ["retry2", "x"]
SERVICES = ["Billing", "billing", "BILLING", "search", "search api", "Été", "ÉTÉ", "ночь", "Ω-mega", "worker_1"]
CODES = ["A1", "a1", "A2", "B2", "Z", "z", "_z", "[", "x:y", 'quo"te\\back', "star*", "", " ", "é", "ａ", "𝒳"]
TAGS = ["red", "Red", "blue", "blue-green", "r", "ré", "RE"]


def records(first: int, count: int) -> list[dict[str, Any]]:
    """Records with the numbers from `first` on; the same ones whenever asked."""
    return [record(number) for number in range(first, first + count)]


def record(number: int) -> dict[str, Any]:
    """Returns the record with a number, always the same one."""
    luck = random.Random(number)
    made: dict[str, Any] = {
        "n": number,
        "ref": f"{'R' if number % 10 else 'r'}{number:05d}",
        "title": text(luck, 3),
        "at": moment(luck, number),
        "service": luck.choice([*SERVICES, *SERVICES, None, 7, ["Billing", "worker_1"]]),
        "code": luck.choice([*CODES, *CODES, None, ["B2", "a1"]]),
        "key": luck.choice(
            [f"k{luck.randrange(40)}", f"K{luck.randrange(40)}", f"ключ{luck.randrange(9)}", "日本", "_"]
        ),
        "status": luck.choice([200, 200, 204, 404, 500, "503", -1, None, [500, 200], 1.5, 2**53 + 1, 2**53, 10**20]),
        "cost": luck.randrange(-16, 64) / 4,
        "size": luck.randrange(1000),
        "paid": luck.choice([True, False, "true", None, "maybe"]),
        "tags": luck.choice(
            [[], [luck.choice(TAGS)], luck.sample(TAGS, 3), [[luck.choice(TAGS)], None, ["deep", 5]]]
        ),
        "note": luck.choice([text(luck, 6), text(luck, 12), [text(luck, 3), text(luck, 3)], None, "", 5]),
    }
    if luck.random() < 0.3:
        made["load"] = load(luck)
    if luck.random() < 0.1:
        made["seen"] = luck.choice(["yes", None])
    if luck.random() < 0.1:
        made["in"] = {"deep/er": luck.choice(["down", "Down"])}
    for name in ("at", "service", "code", "key", "status", "cost", "size", "paid", "tags", "note"):
        if luck.random() < 0.05:
            del made[name]
    if luck.random() < 0.05:
        made["cost"] = luck.choice([None, "2.50", "many", [1, 2], -0.0])
    return made


def text(luck: random.Random, most: int) -> str:
    return luck.choice([" ", ", ", "-"]).join(luck.choices(WORDS, k=luck.randrange(most + 1)))


def moment(luck: random.Random, number: int) -> Any:
    """Mostly in order, as ISO text or milliseconds; now and then nothing of the kind."""
    if luck.random() < 0.03:
        return luck.choice([None, "not a time", []])
    since_ms = number * 4000 % SPAN_MS + luck.randrange(8000)
    at = FIRST + timedelta(milliseconds=since_ms)
    shown = [at.isoformat(timespec="milliseconds").replace("+00:00", "Z"), round(at.timestamp() * 1000)]
    return luck.choice(shown)


def load(luck: random.Random) -> dict[str, Any]:
    made = {"count": luck.randrange(1, 9), "sum": luck.randrange(100) / 4, "min": 0.25, "max": luck.randrange(9)}
    if luck.random() < 0.7:
        made["histogram"] = {"1": luck.randrange(1, 4), "16": 2}
    if luck.random() < 0.1:
        del made["sum"]
    return made


def renamed(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the record as the lens makes it."""
    return {RENAMED.get(name, name): value for name, value in document.items()}


def schema(version: int) -> dict[str, Any]:
    """Of version 1, or of version 2, which has the new names."""
    names = list(RENAMED) if version == 1 else list(RENAMED.values())
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}


def search_of(version: int) -> dict[str, Any]:
    """Returns the configuration with bindings up to this version of the schema."""
    if version == 1:
        return SEARCH
    fields = dict(SEARCH["fields"])
    for old, new in RENAMED.items():
        moved = {"version": 2, "jsonPointer": f"/{new}"}
        fields[old] = {**fields[old], "bindings": [*fields[old]["bindings"], moved]}
    return {**SEARCH, "fields": fields}


def lens(stream: str) -> dict[str, Any]:
    """From version 1 to version 2."""
    ops = [{"op": "rename", "from": f"/{old}", "to": f"/{new}"} for old, new in RENAMED.items()]
    return {"apiVersion": "durable.lens/v1", "schema": stream, "from": 1, "to": 2, "ops": ops}
