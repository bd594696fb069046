"""Conversions of single values: tables, builtins, and the edges of both."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace import instants
from headrace.errors import InvalidRequest
from headrace.json import lens, validate
from headrace.json.lens.convert import compile_transform, is_type, text_of
from headrace.json.lens.ops import Transform
from tests.unit.schema.lens.documents import convert, lens_of

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def converted(value: Any, from_type: str, to_type: str, forward: Any) -> Any:
    return lens.promote([lens_of(convert("", from_type, to_type, forward))], value)


@pytest.mark.parametrize(
    ("builtin", "from_type", "to_type", "value", "result"),
    [
        ("lowercase", "string", "string", "ÄB-1", "äb-1"),
        ("uppercase", "string", "string", "straße", "STRASSE"),
        ("string_to_int", "string", "integer", "9007199254740993", 9007199254740993),
        ("string_to_int", "string", "integer", "-007", -7),
        ("string_to_int", "string", "number", "+1", 1),
        ("int_to_string", "integer", "string", 9007199254740993, "9007199254740993"),
        ("int_to_string", "integer", "string", -3.0, "-3"),
        ("int_to_string", "number", "string", 10**400, "1" + "0" * 400),
        ("rfc3339_to_unix_millis", "string", "integer", "1970-01-01T00:00:00Z", 0),
        ("rfc3339_to_unix_millis", "string", "integer", "2026-11-21T08:00:00.123999999+01:00", 1795244400123),
        ("rfc3339_to_unix_millis", "string", "integer", "1969-12-31T23:59:59.9-00:30", 1799900),
        ("rfc3339_to_unix_millis", "string", "integer", "0000-02-29T00:00:00Z", -62162121600000),
        ("unix_millis_to_rfc3339", "integer", "string", 0, "1970-01-01T00:00:00.000Z"),
        ("unix_millis_to_rfc3339", "integer", "string", -1, "1969-12-31T23:59:59.999Z"),
        ("unix_millis_to_rfc3339", "number", "string", 1.9, "1970-01-01T00:00:00.001Z"),
        ("unix_millis_to_rfc3339", "integer", "string", 8640000000000000, "+275760-09-13T00:00:00.000Z"),
        ("unix_millis_to_rfc3339", "integer", "string", -62167219200001, "-000001-12-31T23:59:59.999Z"),
    ],
)
def test_a_builtin(builtin: str, from_type: str, to_type: str, value: Any, result: Any) -> None:
    assert converted(value, from_type, to_type, builtin) == result


@pytest.mark.parametrize(
    ("builtin", "from_type", "value"),
    [
        ("lowercase", "integer", 1),
        ("string_to_int", "string", "12 apples"),
        ("string_to_int", "string", " 1"),
        ("string_to_int", "string", "1.0"),
        ("string_to_int", "string", "١"),
        ("string_to_int", "string", ""),
        ("string_to_int", "string", "1\n"),
        ("string_to_int", "string", "9" * 5000),
        ("int_to_string", "number", 1.5),
        ("int_to_string", "boolean", True),
        ("rfc3339_to_unix_millis", "string", "2026-02-29T00:00:00Z"),
        ("rfc3339_to_unix_millis", "string", "2026-13-01T00:00:00Z"),
        ("rfc3339_to_unix_millis", "string", "2026-01-01T24:00:00Z"),
        ("rfc3339_to_unix_millis", "string", "2026-01-01T00:00:60Z"),
        ("rfc3339_to_unix_millis", "string", "2026-01-01T00:00:00"),
        ("rfc3339_to_unix_millis", "string", "2026-01-01 00:00:00Z"),
        ("rfc3339_to_unix_millis", "string", "2026-01-01T00:00:00+24:00"),
        ("unix_millis_to_rfc3339", "string", "0"),
        ("unix_millis_to_rfc3339", "boolean", False),
    ],
)
def test_a_value_outside_a_builtins_domain_is_an_error(builtin: str, from_type: str, value: Any) -> None:
    for to_type in ("string", "integer"):
        with pytest.raises(InvalidRequest):
            converted(value, from_type, to_type, builtin)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1", "1"),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        (1, "1"),
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-7"),
        (1e20, "100000000000000000000"),
        (12345678901234567890.5, "12345678901234567168"),
        (2**70, "1180591620717411303424"),
        ({}, None),
        ([1], None),
    ],
)
def test_the_text_under_which_a_table_lists_a_value(value: Any, text: str | None) -> None:
    assert text_of(value) == text


@given(st.integers(-(2**80), 2**80))
def test_equal_numbers_have_one_text(value: int) -> None:
    if float(value) == value:
        assert text_of(float(value)) == text_of(value)


def test_a_table_knows_null_as_a_default() -> None:
    table = {"map": {"a": 1}, "default": None}
    assert converted("b", "string", "null", table) is None
    with pytest.raises(InvalidRequest, match="result is not of type null"):
        converted("a", "string", "null", table)


def test_a_table_without_default_refuses_what_it_does_not_list() -> None:
    table = {"map": {"1": "one", "true": "yes", "[]": "none"}}
    assert converted(1, "integer", "string", table) == "one"
    assert converted(True, "boolean", "string", table) == "yes"
    for value, kind in ((2, "integer"), ([], "array"), ({}, "object")):
        with pytest.raises(InvalidRequest, match="not in the map"):
            converted(value, kind, "string", table)


@pytest.mark.parametrize(
    ("value", "types"),
    [
        (1, {"integer", "number"}),
        (1.0, {"integer", "number"}),
        (1.5, {"number"}),
        (True, {"boolean"}),
        (None, {"null"}),
        ("", {"string"}),
        ({}, {"object"}),
        ([], {"array"}),
    ],
)
def test_types_are_those_of_json_schema(value: Any, types: set[str]) -> None:
    names = ("integer", "number", "boolean", "null", "string", "object", "array")
    assert {name for name in names if is_type(value, name)} == types
    for name in names:
        validator = validate.compile({"type": name})
        if name in types:
            validator.check(value)
        else:
            with pytest.raises(InvalidRequest):
                validator.check(value)


@given(st.datetimes(timezones=st.just(datetime.UTC)), st.integers(-1439, 1439))
def test_times_agree_with_the_standard_library(moment: datetime.datetime, zone_min: int) -> None:
    sign, hours, minutes = "-" if zone_min < 0 else "+", *divmod(abs(zone_min), 60)
    local = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    since_epoch = moment - datetime.timedelta(minutes=zone_min) - EPOCH if _in_range(moment, zone_min) else None
    millis = instants.parse_rfc3339_ms(f"{local}{sign}{hours:02d}:{minutes:02d}")
    if since_epoch is not None:
        assert millis == since_epoch // datetime.timedelta(milliseconds=1)


def _in_range(moment: datetime.datetime, zone_min: int) -> bool:
    try:
        moment - datetime.timedelta(minutes=zone_min)
    except OverflowError:
        return False
    return True


@given(st.integers(-(10**17), 10**17))
@example(-62167219200000)
@example(253402300799999)
def test_a_time_comes_back_if_its_year_has_four_digits(millis: int) -> None:
    text = instants.render(millis)
    assert instants.is_date_time(text) == (-62167219200000 <= millis <= 253402300799999)
    if instants.is_date_time(text):
        assert instants.parse_rfc3339_ms(text) == millis


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_is_a_time(millis: float) -> None:
    assert compile_transform(Transform(builtin="unix_millis_to_rfc3339"))(millis) == instants.render(
        math.trunc(millis)
    )
