"""The template's alarms over metrics of an emulator in time-lapse: each fault raises its own and no other."""

from __future__ import annotations

import pytest

from tests.observability.conftest import Staged
from tests.observability.stages import FAULTS

# What FILL makes of a metric without any value is not documented: alarms must not depend on it.
FILLS_EMPTY = pytest.mark.parametrize("fills_empty", [True, False], ids=["fill", "no-fill"])


@FILLS_EMPTY
def test_nothing_fires_while_all_is_well(staged: Staged, fills_empty: bool) -> None:
    assert staged("healthy").fired(fills_empty=fills_empty) == {}


@FILLS_EMPTY
@pytest.mark.parametrize("alarm", FAULTS)
def test_a_fault_raises_its_own_alarm_and_no_other(staged: Staged, alarm: str, fills_empty: bool) -> None:
    assert set(staged(alarm).fired(fills_empty=fills_empty)) == {alarm}
