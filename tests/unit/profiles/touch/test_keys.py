"""Keys: golden values that every client in any language computes (Prisma Streams, test/live_keys)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from headrace.streams.profiles.touch import keys
from tests.unit.profiles.json_values import TEXTS, VALUES

FIELDS = ("status", "tenantId", "userId")
ARGUMENTS = ("open", "t1", "u1")


def test_golden_keys() -> None:
    template = keys.template_id("public.todos", FIELDS)
    assert keys.as_hex(keys.table_key("public.todos")) == "feadeb84d447fd63"
    assert keys.as_hex(template) == "ddd2330fdab379da"
    assert keys.as_hex(keys.watch_key(template, ARGUMENTS)) == "39accd125778dc36"
    assert keys.as_hex(keys.membership_key(template, ARGUMENTS)) == "eae633979a7ee466"
    assert keys.as_hex(keys.field_key(template, "title", ARGUMENTS)) == "1ecc53e76a89f0d5"


def test_the_template_of_the_peers_documentation() -> None:
    """Observed on a running server."""
    assert keys.as_hex(keys.template_id("public.todos", ("status", "tenantId"))) == "03d5826f0bf1e3e7"


@pytest.mark.parametrize(
    ("value", "encoding", "argument"),
    [
        ("open", "string", "open"),
        ("", "string", ""),
        (1.0, "string", "1"),
        (1e21, "string", "1e+21"),
        (True, "string", "true"),
        (7, "int64", "7"),
        (7.0, "int64", "7"),
        (7.5, "int64", None),
        (9007199254740993, "int64", "9007199254740993"),
        (" -12 ", "int64", "-12"),
        ("012", "int64", None),
        (True, "int64", None),
        (True, "bool", "1"),
        (False, "bool", "0"),
        ("true", "bool", None),
        (1, "bool", None),
        ("2026-03-25T10:00:00+02:00", "datetime", "2026-03-25T08:00:00.000Z"),
        ("yesterday", "datetime", None),
        (5, "datetime", None),
        ("AQID", "bytes", "AQID"),
        (5, "bytes", None),
        (None, "string", None),
        ([1], "string", None),
        ({}, "int64", None),
        (10**400, "int64", None),
    ],
    ids=str,
)
def test_arguments(value: Any, encoding: str, argument: str | None) -> None:
    assert keys.encode_argument(value, encoding) == argument


@given(VALUES)
def test_whatever_the_value_it_is_encoded_or_not(value: Any) -> None:
    for encoding in keys.ENCODINGS:
        argument = keys.encode_argument(value, encoding)
        if argument is not None:
            keys.watch_key(1, (argument,))


@given(TEXTS)
def test_keys_are_read_as_they_are_written(text: str) -> None:
    key = keys.table_key(text)
    assert keys.from_hex(keys.as_hex(key)) == key
    assert keys.from_hex(f" {keys.as_hex(key).upper()} ") == key
    assert keys.from_hex(text) is None
    assert 0 <= keys.key_id_of_text(text) <= keys.KEY_ID_MASK
