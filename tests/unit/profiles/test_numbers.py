"""Numbers as ECMAScript prints them."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.streams.profiles.numbers import number_or_none, number_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (123456789012345680.0, "123456789012345680"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (10**21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (1.25e-7, "1.25e-7"),
        (5e-324, "5e-324"),
        (9007199254740993, "9007199254740993"),
    ],
    ids=str,
)
def test_numbers_print_as_in_ecmascript(value: float, text: str) -> None:
    assert number_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_number_reads_back(value: float) -> None:
    assert float(number_or_none(number_text(value)) or 0) == value


def test_node_prints_the_same() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node.js")
    values = [7.0**n * sign / 3.0 for n in range(-120, 120, 3) for sign in (1, -1)]
    program = f"console.log({[repr(value) for value in values]}.map(x => String(Number(x))).join(' '))"
    printed = subprocess.run([node, "-e", program], capture_output=True, text=True, check=True).stdout.split()
    assert [number_text(value) for value in values] == printed
