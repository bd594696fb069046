"""The grammar, and what a configuration lets a query ask."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.json import search_config
from headrace.query.language import grammar, query
from headrace.query.language.query import And, Anywhere, Compare, Equals, Has, Node, Not, Or, Prefix, Words
from tests.unit.search.samples import CONFIG, SEARCH, field

A, B, C = (Equals("service", letter) for letter in "abc")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("service:a", A),
        (" \t\n\ufeffservice:a ", A),
        ("service : a", A),
        ("service:=a", A),
        ("(((service:a)))", A),
        ("service:a service:b", And((A, B))),
        ("service:a AND service:b and service:c", And((A, B, C))),
        ("service:a OR service:b or service:c", Or((A, B, C))),
        ("service:a OR service:b service:c", Or((A, And((B, C))))),
        ("(service:a OR service:b) service:c", And((Or((A, B)), C))),
        ("NOT service:a service:b", And((Not(A), B))),
        ("-service:a", Not(A)),
        ("- service:a", Not(A)),
        ("--service:a", Not(Not(A))),
        ("NOT not -service:a", Not(Not(Not(A)))),
        ("-(service:a OR service:b)", Not(Or((A, B)))),
        ("service:a(service:b)", And((A, B))),
        ("svc:A", A),
        ("service:and", Equals("service", "and")),
        ("service:not service:a", And((Equals("service", "not"), A))),
        ("code:a-b", Equals("code", "a-b")),
        ('code:a"b', Equals("code", 'a"b')),
        ('code:"a b"', Equals("code", "a b")),
        ('code:"x:y"', Equals("code", "x:y")),
        (r'code:"a\"b\\c\n"', Equals("code", 'a"b\\cn')),
        ('code:""', Equals("code", "")),
        ('code:"a\nb"', Equals("code", "a\nb")),
        ("has:service", Has("service")),
        ("has:svc", Has("service")),
        ("has:seen", Has("seen")),
        ("has:code", Has("code")),
        ("has:cost", Has("cost")),
        ("has:message", Has("message")),
        ("status:5", Equals("status", 5)),
        ("status:>5", Compare("status", ">", 5)),
        ("status:>=5", Compare("status", ">=", 5)),
        ("status:<5", Compare("status", "<", 5)),
        ("status : <= 5", Compare("status", "<=", 5)),
        ('status:>="-5"', Compare("status", ">=", -5)),
        ("status:-5", Equals("status", -5)),
        ("status:=-5", Equals("status", -5)),
        ("status : -5", Equals("status", -5)),
        ("status:>-5", Compare("status", ">", -5)),
        ("status:>=-40", Compare("status", ">=", -40)),
        ("status:<-5", Compare("status", "<", -5)),
        ("status:<= -5", Compare("status", "<=", -5)),
        ("cost:-.5", Equals("cost", -0.5)),
        ("cost:<-1e3", Compare("cost", "<", -1000.0)),
        ("at:>=-1", Compare("at", ">=", -1)),
        ("-status:-5", Not(Equals("status", -5))),
        ("status:-5 -service:a", And((Equals("status", -5), Not(A)))),
        ("(status:-5)", Equals("status", -5)),
        ("status:9007199254740993", Equals("status", 9007199254740993)),
        ("count:5", Equals("count", 5)),
        ("cost:1e3", Equals("cost", 1000.0)),
        ("cost:>0.5", Compare("cost", ">", 0.5)),
        ("paid:TRUE", Equals("paid", True)),
        ("paid:>false", Compare("paid", ">", False)),
        ("at:2026-01-01", Equals("at", 1767225600000)),
        ('at:<"2026-01-01T01:00:00+01:00"', Compare("at", "<", 1767225600000)),
        ("at:1767225600000", Equals("at", 1767225600000)),
    ],
)
def test_a_query_that_both_understand(text: str, expected: Node) -> None:
    assert grammar.parse_filter(text, CONFIG) == expected
    assert grammar.parse_query(text, CONFIG) == expected


def words(field_: str, text: str, *, phrase: bool = False, prefix: bool = False) -> Words:
    return Words(field_, tuple(text.split()), phrase, prefix)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("service:Ab*", Prefix("service", "ab")),
        ('service:"a b*"', Prefix("service", "a b")),
        ("service:a**", Prefix("service", "a*")),
        (r'service:"ab\*"', Equals("service", "ab*")),
        (r'service:"ab\\*"', Prefix("service", "ab\\")),
        ("service:*", Equals("service", "*")),
        ("path:/a*", Prefix("path", "/a")),
        ("message:Card", words("message", "card")),
        ("message:card-declined", words("message", "card declined")),
        ("message:decl*", words("message", "decl", prefix=True)),
        ("message:card-decl*", words("message", "card decl", prefix=True)),
        ('message:"Card declined"', words("message", "card declined", phrase=True)),
        ('message:"card decl*"', words("message", "card decl", phrase=True, prefix=True)),
        ('message:"card"', words("message", "card")),
        ("why:slow", words("why", "slow")),
        ('why:"slow"', words("why", "slow")),
        ("has:why", Has("why")),
        ("Card", Anywhere((words("message", "card"), Equals("service", "card")), (2.0, 1.0))),
        ("ca*", Anywhere((words("message", "ca", prefix=True), Prefix("service", "ca")), (2.0, 1.0))),
        ('"A b"', Anywhere((words("message", "a b", phrase=True), Equals("service", "a b")), (2.0, 1.0))),
        ("!", Anywhere((Equals("service", "!"),), (1.0,))),
        ('"and"', Anywhere((words("message", "and"), Equals("service", "and")), (2.0, 1.0))),
        (
            "-card service:a",
            And((Not(Anywhere((words("message", "card"), Equals("service", "card")), (2.0, 1.0))), A)),
        ),
    ],
)
def test_a_query_for_searches_alone(text: str, expected: Node) -> None:
    assert grammar.parse_query(text, CONFIG) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("service:ab*", Equals("service", "ab*")),
        (r'code:"a*"', Equals("code", "a*")),
        ("column.only:a", Equals("column.only", "a")),
    ],
)
def test_in_a_filter_the_star_is_a_character_and_a_column_is_enough(text: str, expected: Node) -> None:
    assert grammar.parse_filter(text, CONFIG) == expected


MALFORMED = [
    ("", "empty"),
    (" \ufeff", "empty"),
    ("service:", "no value where one is needed: position=8"),
    ("service:>=", "no value where one is needed: position=10"),
    ("service::a", "no value where one is needed: position=8"),
    ("service:(a)", "no value where one is needed: position=8"),
    ("service:-a", "a value that begins with - and must be quoted: position=8"),
    ("status:- 5", "a value that begins with - and must be quoted: position=7"),
    ("status:--5", "a value that begins with - and must be quoted: position=7"),
    ('status:>-"5"', "a value that begins with - and must be quoted: position=8"),
    ("status:>-", "a value that begins with - and must be quoted: position=8"),
    (":a", "no clause where one is needed: position=0"),
    ("AND", "no clause where one is needed: position=0"),
    ("OR service:a", "no clause where one is needed: position=0"),
    ("service:a AND", "no clause where one is needed: position=13"),
    ("service:a OR OR service:b", "no clause where one is needed: position=13"),
    ("service:a AND NOT", "no clause where one is needed: position=17"),
    ("NOT", "no clause where one is needed: position=3"),
    ("-", "no clause where one is needed: position=1"),
    ("()", "no clause where one is needed: position=1"),
    ("(service:a", "a ( that is not closed: position=0"),
    ("((service:a)", "a ( that is not closed: position=0"),
    ("service:a)", "a ) too many: position=9"),
    ("service:a > b", "no clause where one is needed: position=10"),
    ('service:"a', "a quote that is not closed: position=8"),
    ('service:"a\\"', "a quote that is not closed: position=8"),
    ("has:", "no field name after has:: position=4"),
    ('has:"service"', "no field name after has:: position=4"),
    ("has:-service", "no field name after has:: position=4"),
    ("has:other", "unknown field other: position=0"),
    ("service:a other:b", "unknown field other: position=10"),
    ("HAS:service", "unknown field HAS: position=0"),
    ("contains:card", "contains: is not supported: position=0"),
    ("status:many", "a value for field status that is not a whole number: position=7"),
    ("status:>=1.5", "a value for field status that is not a whole number: position=9"),
    ("cost:one", "a value for field cost that is not a number: position=5"),
    ('cost:""', "a value for field cost that is not a number: position=5"),
    ("paid:perhaps", "a value for field paid that is not true or false: position=5"),
    ("at:yesterday", "a value for field at that is not an ISO date or milliseconds: position=3"),
    ("service:>a", "field service does not offer comparison: position=9"),
    ("message:>a", "field message does not offer comparison: position=9"),
    ("count:>1", "field count does not offer comparison: position=7"),
    ("seen:a", "field seen does not offer equality: position=0"),
    ("has:nothing", "field nothing does not offer has:: position=0"),
    ("path:a", "field path does not offer equality: position=0"),
]


@pytest.mark.parametrize(("text", "problem"), MALFORMED)
def test_what_is_refused_says_what_and_where(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as in_filter:
        grammar.parse_filter(text, CONFIG)
    with pytest.raises(InvalidRequest) as in_query:
        grammar.parse_query(text, CONFIG)
    assert str(in_filter.value) == f"filter: {problem}"
    assert str(in_query.value) == f"q: {problem}"


@pytest.mark.parametrize("text", ["card", '"card"', "service:a card", "message:card", 'message:"a b"', "has:why"])
def test_a_filter_looks_into_no_text(text: str) -> None:
    with pytest.raises(InvalidRequest):
        grammar.parse_filter(text, CONFIG)
    grammar.parse_query(text, CONFIG)


@pytest.mark.parametrize(
    "text", ["code:a*", "column.only:a", 'why:"slow disk"', "message:!", 'message:"*"', "message:!*", "seen:a*"]
)
def test_what_a_search_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        grammar.parse_query(text, CONFIG)


def with_fields(default: list[str], **fields: dict[str, Any]) -> search_config.SearchConfig:
    search = copy.deepcopy(SEARCH)
    search["fields"] |= fields
    search["defaultFields"] = [{"field": name} for name in default]
    return search_config.parse(search, 1)


def test_without_default_fields_a_bare_word_is_looked_for_in_every_text() -> None:
    expected = Anywhere((words("message", "card"), words("why", "card")), (1.0, 1.0))
    assert grammar.parse_query("card", with_fields([])) == expected


def test_a_bare_phrase_is_looked_for_where_there_are_positions() -> None:
    assert grammar.parse_query('"a b"', with_fields([])) == Anywhere((words("message", "a b", phrase=True),), (1.0,))
    with pytest.raises(InvalidRequest, match="no default field"):
        grammar.parse_query('"a b"', with_fields(["why"]))


@pytest.mark.parametrize(("default", "text"), [("path", "a"), ("code", "a*"), ("seen", "a"), ("message", "!")])
def test_a_bare_word_needs_a_default_field_that_offers_it(default: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match="no default field"):
        grammar.parse_query(text, with_fields([default]))


def test_a_keyword_of_the_language_before_a_colon_is_a_field() -> None:
    config = with_fields(
        [], **{"and": field("keyword", "/and", "exact"), "contains": field("keyword", "/c", "exact")}
    )
    assert grammar.parse_filter("service:a and:b", config) == And((A, Equals("and", "b")))
    assert grammar.parse_filter("has:and", config) == Has("and")
    assert grammar.parse_filter("contains:a", config) == Equals("contains", "a")


@pytest.mark.parametrize("around", [("(", ")"), ("NOT ", ""), ("-", ""), ("-(", ")")])
def test_depth_is_bounded(around: tuple[str, str]) -> None:
    levels = len(around[0].replace("NOT ", "-"))
    most = grammar.MAX_DEPTH // levels
    assert grammar.parse_filter(around[0] * most + "service:a" + around[1] * most, CONFIG)
    with pytest.raises(InvalidRequest, match="nested too deep"):
        grammar.parse_filter(around[0] * (most + 1) + "service:a" + around[1] * (most + 1), CONFIG)


def test_depth_is_that_of_one_clause_and_not_their_sum() -> None:
    assert grammar.parse_filter("(-service:a) " * 200, CONFIG)


def test_length_and_clauses_are_bounded() -> None:
    assert grammar.parse_filter("has:code " * grammar.MAX_CLAUSES, CONFIG)
    with pytest.raises(InvalidRequest, match="too many clauses: limit=1000"):
        grammar.parse_filter("has:code " * (grammar.MAX_CLAUSES + 1), CONFIG)
    assert grammar.parse_filter("service:" + "a" * (grammar.MAX_CHARS - 8), CONFIG)
    with pytest.raises(InvalidRequest, match="too long: limit=16384 received=16385"):
        grammar.parse_filter("service:" + "a" * (grammar.MAX_CHARS - 7), CONFIG)


def test_the_fields_of_a_query() -> None:
    node = grammar.parse_query("-(status:>5 OR has:code) card svc:a*", CONFIG)
    assert query.fields_of(node) == {"status", "code", "message", "service"}


_PIECES = [
    "service",
    "status",
    "has",
    ":",
    "(",
    ")",
    "-",
    ">",
    ">=",
    "=",
    '"',
    "\\",
    "*",
    " ",
    "and",
    "OR",
    "NOT",
    "5",
    "é",
    "\x00",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=20).map("".join) | st.text(max_size=40))
def test_any_text_is_a_query_or_is_refused(text: str) -> None:
    for parse in (grammar.parse_filter, grammar.parse_query):
        try:
            parse(text, CONFIG)
        except InvalidRequest as refusal:
            assert str(refusal).startswith(("filter: ", "q: "))
