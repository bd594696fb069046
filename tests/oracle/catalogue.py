"""The questions that are asked in every stage: a fixed list of each kind, and random ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.oracle.aggregates import Request
from tests.oracle.queries import All, Bare, Begins, Compares, Either, Has, Is, Not, Query, Text
from tests.oracle.records import CODES, FIRST, SERVICES, SPAN_MS, TAGS, WORDS

START_MS = round(FIRST.timestamp() * 1000)
END_MS = START_MS + SPAN_MS
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
SORTABLE = ("at", "ref", "service", "code", "status", "cost", "paid")
BOUND = 2**53

QUERIES: dict[str, Sequence[Query]] = {
    "exact keyword": [
        Is("service", "billing"),
        Is("service", "BILLING"),
        Is("svc", "été"),
        Is("service", "search api"),
        Is("service", "nothing"),
        Is("ref", "R00007"),
        Is("ref", "r00007"),
        *(Is("code", code) for code in CODES),
        Is("tag", "red"),
        Is("tag", "deep"),
        Is("deep", "down"),
    ],
    "keyword prefix": [
        Begins("ref", "R"),
        Begins("ref", "r"),
        Begins("ref", "R00"),
        Begins("ref", "R001"),
        Begins("service", "Bill"),
        Begins("service", "S"),
        Begins("svc", "ét"),
        Begins("code", "a"),
        Begins("code", "A"),
        Begins("code", "Z"),
        Begins("code", "𝒳"),
        Begins("code", "nothing"),
        Begins("tag", "r"),
        Begins("tag", "blue-"),
    ],
    "typed equality": [
        Is("status", "200"),
        Is("status", "503"),
        Is("status", "-1"),
        Is("status", str(BOUND)),
        Is("status", str(BOUND + 1)),
        Is("status", str(10**20)),
        Is("cost", "2.5"),
        Is("cost", "0"),
        Is("cost", "-4"),
        Is("paid", "true"),
        Is("paid", "false"),
        Is("at", "2026-01-01T22:30:00.000Z"),
        Is("size", "7"),
    ],
    "comparison": [
        Compares("status", ">", "200"),
        Compares("status", ">=", "200"),
        Compares("status", "<", "404"),
        Compares("status", "<=", "-1"),
        Compares("status", ">=", str(BOUND + 1)),
        Compares("status", ">", str(BOUND)),
        Compares("cost", "<", "0"),
        Compares("cost", ">=", "15.75"),
        Compares("when", ">=", "2026-01-02T00:00:00Z"),
        Compares("at", "<", "2026-01-01T23:00:00.000+00:00"),
        Compares("size", ">", "990"),
        All((Compares("at", ">=", str(START_MS + HOUR_MS)), Compares("at", "<", str(START_MS + 2 * HOUR_MS)))),
    ],
    "has": [Has(name) for name in ("at", "service", "code", "status", "cost", "size", "paid", "tag")]
    + [Has("seen"), Has("deep"), Has("note"), Has("title"), Not(Has("note")), Not(Has("paid")), Not(Has("seen"))],
    "text": [
        Text("note", "card"),
        Text("note", "CARD"),
        Text("note", "zürich"),
        Text("note", "日本"),
        Text("note", "card-declined"),
        Text("note", "pay", prefix=True),
        Text("note", "r", prefix=True),
        Text("note", "card/pay", prefix=True),
        Text("title", "payment"),
        Text("title", "ÉTÉ"),
        Text("note", "nothing"),
    ],
    "phrase": [
        Text("note", "card declined", phrase=True),
        Text("note", "Payment payments", phrase=True),
        Text("note", "declined card", phrase=True),
        Text("note", "card accepted declined", phrase=True),
        Text("note", "gateway time", phrase=True, prefix=True),
        Text("note", "ночь 日本", phrase=True),
        Text("note", "x x", phrase=True),
    ],
    "bare words": [
        Bare("card"),
        Bare("Billing"),
        Bare("pay", prefix=True),
        Bare("b", prefix=True),
        Bare("été"),
        Bare("nothing"),
        All((Bare("card"), Bare("timeout"))),
        Either((Bare("card"), Bare("billing"))),
    ],
    "joined": [
        All((Is("service", "billing"), Compares("status", ">=", "500"))),
        All((Is("service", "billing"), Not(Is("paid", "true")))),
        Either((Is("code", "A1"), Is("code", "a1"))),
        Either((Is("service", "search"), All((Is("tag", "red"), Text("note", "card"))))),
        All((Either((Is("tag", "red"), Is("tag", "Red"))), Not(Has("seen")), Compares("cost", ">", "2"))),
        Not(Either((Has("status"), Has("code")))),
        Not(Not(Is("code", "B2"))),
        Not(Is("service", "billing")),
        All((Not(Text("note", "card")), Text("title", "card"))),
        All((Begins("ref", "R"), Is("service", "worker_1"), Is("status", "404"))),
    ],
}

SORTS: Sequence[tuple[str, ...]] = (
    ("offset:asc",),
    ("offset:desc",),
    *((f"{name}:{direction}",) for name in SORTABLE for direction in ("asc", "desc")),
    ("service:asc", "cost:desc"),
    ("paid:desc", "status:asc", "ref:desc"),
    ("when:asc",),
    ("status:asc", "offset:asc"),
    ("_score:desc",),
    ("_score:asc", "at:asc"),
    ("cost",),
)

REQUESTS: dict[str, Sequence[Request]] = {
    "whole hours": [
        Request("requests", START_MS - START_MS % HOUR_MS, END_MS + HOUR_MS, "1h"),
        Request("requests", START_MS - START_MS % HOUR_MS, END_MS + HOUR_MS, "1h", group_by=("service",)),
        Request("requests", START_MS - START_MS % HOUR_MS, END_MS + HOUR_MS, "1m", group_by=("service", "paid")),
        Request("all", 0, END_MS * 2, "10m"),
    ],
    "ragged edges": [
        Request("requests", START_MS + 12_345, END_MS - 54_321, "1h", group_by=("service",)),
        Request("requests", START_MS + 1, START_MS + 90_001, "1m"),
        Request("requests", START_MS + 20_000, START_MS + 20_001, "1m"),
        Request("all", START_MS + 7, END_MS - 7, "10m"),
    ],
    "dimensions and measures": [
        Request("requests", START_MS, END_MS, "1h", group_by=("paid",)),
        Request("requests", START_MS, END_MS, "1h", group_by=("paid", "service"), measures=("cost",)),
        Request("requests", START_MS, END_MS, "1m", measures=("requests", "dear")),
        Request("codes", START_MS - START_MS % HOUR_MS, END_MS, "30m", group_by=("code",)),
        Request("codes", START_MS, END_MS, "30m", group_by=("status", "code")),
        Request("parts", START_MS, END_MS, "1h", group_by=("service",)),
        Request("parts", 0, END_MS * 2, "1h"),
    ],
    "queries": [
        Request("requests", START_MS, END_MS, "1h", Is("service", "Billing")),
        Request("requests", START_MS, END_MS, "1h", Is("svc", "search api"), ("paid",)),
        Request("requests", 0, END_MS * 2, "1h", All((Is("service", "billing"), Is("paid", "true"))), ("paid",)),
        Request("requests", START_MS, END_MS, "1m", Is("service", "nothing")),
        Request("requests", START_MS, END_MS, "1h", Is("code", "B2"), ("service",)),
        Request("requests", START_MS, END_MS, "1h", Not(Is("service", "billing")), ("service",)),
        Request("requests", START_MS, END_MS, "1h", Text("note", "card"), ("service",)),
        Request("requests", START_MS, END_MS, "1h", Compares("status", ">=", "404")),
        Request("requests", START_MS, END_MS, "1m", Begins("ref", "R0001")),
        Request("codes", START_MS, END_MS, "30m", Is("code", "B2"), ("code", "status")),
        Request("all", START_MS, END_MS, "10m", Bare("card")),
    ],
}


def random_query(luck: random.Random, depth: int = 3) -> Query:
    """Returns a query of a few clauses, joined in any way."""
    if depth and luck.random() < 0.6:
        parts = tuple(random_query(luck, depth - 1) for _ in range(luck.randrange(2, 4)))
        return luck.choice([All(parts), All(parts), Either(parts), Not(parts[0])])
    return random_clause(luck)


def random_clause(luck: random.Random) -> Query:
    number, words = luck.randrange(1200), luck.choices(WORDS, k=2)
    fields = [
        "at",
        "ref",
        "service",
        "code",
        "status",
        "cost",
        "size",
        "paid",
        "tag",
        "seen",
        "deep",
        "note",
        "title",
    ]
    return luck.choice(
        [
            Is("service", luck.choice(SERVICES)),
            Is("code", luck.choice(CODES)),
            Is("tag", luck.choice(TAGS)),
            Is("ref", f"R{number:05d}"),
            Begins("ref", f"{luck.choice('Rr')}{number:05d}"[: luck.randrange(1, 6)]),
            Begins("service", luck.choice(SERVICES)[: luck.randrange(1, 4)]),
            Begins("tag", luck.choice(TAGS)[:1]),
            Is("status", str(luck.choice([200, 404, 500, 503, -1, BOUND, BOUND + 1]))),
            Compares("status", luck.choice(["<", "<=", ">", ">="]), str(luck.choice([-1, 200, 404, 503, BOUND]))),
            Compares("cost", luck.choice(["<", "<=", ">", ">="]), str(luck.randrange(-16, 64) / 4)),
            Compares("at", luck.choice(["<", ">="]), str(luck.randrange(START_MS, END_MS))),
            Is("paid", luck.choice(["true", "false"])),
            Has(luck.choice(fields)),
            Text("note", words[0]),
            Text("note", words[0][: luck.randrange(1, 5)], prefix=True),
            Text("note", " ".join(words), phrase=True),
            Text("title", words[0]),
            Bare(luck.choice(WORDS)),
        ]
    )


def random_sort(luck: random.Random) -> tuple[str, ...]:
    """Returns an order by up to three keys."""
    names = luck.sample([*SORTABLE, "offset", "_score"], luck.randrange(1, 4))
    return tuple(f"{name}:{luck.choice(['asc', 'desc'])}" for name in names)


def random_request(luck: random.Random) -> Request:
    """Returns an aggregate of any rollup, range and query."""
    rollup, interval = luck.choice(
        [("requests", "1m"), ("requests", "1h"), ("all", "10m"), ("codes", "30m"), ("parts", "1h")]
    )
    dimensions = {"requests": ["service", "paid"], "codes": ["code", "status"], "parts": ["service"], "all": []}[
        rollup
    ]
    start = luck.choice([0, luck.randrange(START_MS, END_MS), START_MS // HOUR_MS * HOUR_MS])
    end = luck.choice([END_MS * 2, luck.randrange(start + 1, END_MS + 1), END_MS // HOUR_MS * HOUR_MS])
    query = luck.choice([None, None, random_query(luck, 1), Is("service", luck.choice(SERVICES))])
    group_by = tuple(luck.sample(dimensions, luck.randrange(len(dimensions) + 1)))
    return Request(rollup, start, max(end, start + 1), interval, query, group_by)
