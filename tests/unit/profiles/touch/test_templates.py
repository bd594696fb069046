"""Templates: activation, use, expiry, limits; and the bytes of the document."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Damaged
from headrace.streams.profiles.touch import keys
from headrace.streams.profiles.touch.config import TemplateLimits, parse_config
from headrace.streams.profiles.touch.templates import (
    MAX_NAME,
    Activation,
    Declaration,
    TemplateBook,
    by_entity,
    dump,
    load,
)

LIMITS = parse_config({"enabled": True}).limits
MINUTE, HOUR = 60_000, 3_600_000
TODOS = Declaration("todos", (("tenant", "string"), ("done", "bool")))
TODOS_ID = keys.template_id("todos", ("done", "tenant"))


def activate(
    book: TemplateBook, *declarations: Declaration, now_ms: int = 1000, at: int = 5, **limits: Any
) -> tuple[TemplateBook, tuple[Activation, ...]]:
    bounds: TemplateLimits = LIMITS._replace(**limits)
    return book.activate(declarations, ttl_ms=HOUR, limits=bounds, next_offset=at, now_ms=now_ms)


def one_field(name: str, entity: str = "todos") -> Declaration:
    return Declaration(entity, ((name, "string"),))


def test_a_template_is_active_from_the_end_of_the_log() -> None:
    book, outcomes = activate(TemplateBook(), TODOS)
    assert outcomes == (Activation(TODOS_ID),)
    (template,) = book.active(1000)
    assert (template.entity, template.fields, template.encodings) == ("todos", ("done", "tenant"), ("bool", "string"))
    assert (template.active_from, template.seen_ms, template.ttl_ms) == (5, 1000, HOUR)
    assert by_entity([template]) == {"todos": (template,)}


def test_activating_again_refreshes_and_keeps_where_it_began() -> None:
    book, _ = activate(TemplateBook(), TODOS)
    turned = Declaration("todos", tuple(reversed(TODOS.fields)))
    again, outcomes = activate(book, turned, now_ms=2000, at=9)
    (template,) = again.templates
    assert (template.active_from, template.seen_ms) == (5, 2000)
    assert outcomes == (Activation(TODOS_ID),)


@pytest.mark.parametrize(
    "declaration",
    [
        Declaration("todos", (("a", "text"),)),
        Declaration("todos", (("a", "string"), ("a", "string"))),
        Declaration("todos", ()),
        Declaration("todos", tuple((name, "string") for name in "abcd")),
        Declaration(" ", (("a", "string"),)),
        Declaration("todos", ((" ", "string"),)),
        Declaration("t" * (MAX_NAME + 1), (("a", "string"),)),
    ],
    ids=repr,
)
def test_what_makes_no_template_is_denied_alone(declaration: Declaration) -> None:
    book, outcomes = activate(TemplateBook(), declaration, TODOS)
    assert outcomes == (Activation(0, "invalid"), Activation(TODOS_ID))
    assert [template.id for template in book.templates] == [TODOS_ID]


def test_other_encodings_of_an_active_template_are_denied() -> None:
    book, _ = activate(TemplateBook(), TODOS)
    other = Declaration("todos", (("tenant", "int64"), ("done", "bool")))
    same, outcomes = activate(book, other, now_ms=2000)
    assert outcomes == (Activation(TODOS_ID, "invalid"),)
    assert same.templates == book.templates
    later, outcomes = activate(book, other, now_ms=1000 + HOUR + 1)
    assert outcomes == (Activation(TODOS_ID),)
    assert later.templates[0].encodings == ("bool", "int64")


def test_an_idle_template_is_inactive_and_a_use_revives_it_without_a_gap() -> None:
    book, _ = activate(TemplateBook(), TODOS)
    assert book.active(1000 + HOUR)
    assert not book.active(1001 + HOUR)
    revived = book.used({TODOS_ID}, 2 * HOUR, LIMITS.persist_interval_ms)
    (template,) = revived.active(2 * HOUR)
    assert template.active_from == 5


def test_a_use_is_written_down_once_in_a_while() -> None:
    book, _ = activate(TemplateBook(), TODOS)
    assert book.used({TODOS_ID}, 1000 + 5 * MINUTE, LIMITS.persist_interval_ms) is book
    assert book.used({1, 2}, 2 * HOUR, LIMITS.persist_interval_ms) is book
    written = book.used({TODOS_ID}, 1001 + 5 * MINUTE, LIMITS.persist_interval_ms)
    assert written.templates[0].seen_ms == 1001 + 5 * MINUTE


def test_a_short_life_is_renewed_in_time() -> None:
    book, _ = TemplateBook().activate([TODOS], ttl_ms=2000, limits=LIMITS, next_offset=0, now_ms=0)
    assert book.used({TODOS_ID}, 1000, LIMITS.persist_interval_ms) is book
    assert book.used({TODOS_ID}, 1001, LIMITS.persist_interval_ms).templates[0].seen_ms == 1001


def test_new_templates_are_limited_by_the_minute() -> None:
    names = [one_field(f"f{number}") for number in range(4)]
    book, outcomes = activate(TemplateBook(), *names, activations_per_minute=2)
    assert [outcome.denied for outcome in outcomes] == [None, None, "rate_limited", "rate_limited"]
    assert outcomes[2].template_id == keys.template_id("todos", ("f2",))
    book, outcomes = activate(book, *names, now_ms=1000 + MINUTE // 2, activations_per_minute=2)
    assert [outcome.denied for outcome in outcomes] == [None, None, None, "rate_limited"]
    book, outcomes = activate(book, *names, now_ms=1001 + MINUTE // 2, activations_per_minute=0)
    assert [outcome.denied for outcome in outcomes] == [None] * 4


def test_over_the_limit_the_least_recently_used_give_way() -> None:
    book, _ = activate(TemplateBook(), one_field("a"), now_ms=1)
    book, _ = activate(book, one_field("b"), now_ms=2)
    book, _ = activate(book, one_field("c", "posts"), now_ms=3)
    per_entity, _ = activate(book, one_field("d"), now_ms=4, per_entity=2)
    assert {template.fields[0] for template in per_entity.templates} == {"b", "c", "d"}
    per_stream, _ = activate(book, one_field("d"), now_ms=4, per_stream=2)
    assert {template.fields[0] for template in per_stream.templates} == {"c", "d"}


def test_what_was_just_asked_for_stays() -> None:
    for first, second in (("a", "b"), ("b", "a")):
        book, _ = activate(TemplateBook(), one_field(first))
        book, _ = activate(book, one_field(second), per_entity=1)
        assert [template.fields for template in book.templates] == [(second,)]


DECLARATIONS = st.builds(
    Declaration,
    st.sampled_from(["a", "b"]),
    st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from(["int64", "bool", "?"])), max_size=4).map(tuple),
)


@given(st.lists(st.tuples(st.lists(DECLARATIONS, max_size=4), st.integers(0, 2 * HOUR)), max_size=5))
def test_limits_hold_and_every_declaration_is_answered(rounds: list[tuple[list[Declaration], int]]) -> None:
    book, now_ms = TemplateBook(), 1
    for number, (declarations, pause_ms) in enumerate(rounds):
        now_ms += pause_ms
        book, outcomes = activate(book, *declarations, now_ms=now_ms, at=number, per_entity=2, per_stream=3)
        assert len(outcomes) == len(declarations)
        assert len(book.templates) <= 3
        assert all(len(found) <= 2 for found in by_entity(book.templates).values())
        assert len({template.id for template in book.templates}) == len(book.templates)
        assert book.active(now_ms) == book.templates
        assert load(dump(book)) == book


def test_golden_bytes_of_the_document() -> None:
    book, _ = activate(TemplateBook(), TODOS)
    data = (
        b'{"version":1,"templates":[[%d,"todos",["done","tenant"],["bool","string"],5,1000,3600000]],'
        b'"tokens":99.0,"filled_ms":1000}' % TODOS_ID
    )
    assert dump(book) == data
    assert load(data) == book


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version":0}', b'{"version":1,"templates":[[1]]}', b"\xff"])
def test_a_damaged_document_is_not_read(data: bytes) -> None:
    with pytest.raises(Damaged):
        load(data)
