"""The clock of a process follows the time that a store tells."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from headrace.clock import SystemClock, age_s, moment

NOW_MS = 1_700_000_000_000


class StoppedClock(SystemClock):
    """The clock of a machine that is suspended until a test moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.machine_ms = NOW_MS

    def wall_ms(self) -> int:
        return self.machine_ms

    def monotonic(self) -> float:
        return 0.0


def told(time_ms: int) -> int:
    """Returns the time as the header of an answer tells it."""
    return time_ms // 1000 * 1000


@pytest.mark.parametrize("off_ms", [0, 1_900, -1_900, 2_500, -2_500])
def test_a_clock_that_is_at_most_two_seconds_off_is_left_alone(off_ms: int) -> None:
    clock = StoppedClock()
    corrected = clock.follow(NOW_MS, told(NOW_MS + off_ms))
    assert (clock.now_ms() != NOW_MS) is corrected
    assert not corrected or abs(off_ms) > 2_000
    assert abs(clock.now_ms() - (NOW_MS + off_ms)) <= 3_000


@pytest.mark.parametrize("off_ms", [3_100, -3_100, 3_600_000, -3_600_000])
def test_a_clock_that_is_wrong_is_corrected_once(off_ms: int) -> None:
    clock = StoppedClock()
    assert clock.follow(NOW_MS, told(NOW_MS + off_ms))
    assert abs(clock.now_ms() - (NOW_MS + off_ms)) <= 1_000
    assert not clock.follow(NOW_MS, told(NOW_MS + off_ms))


def test_an_answer_that_took_long_says_less() -> None:
    clock = StoppedClock()
    clock.machine_ms += 60_000
    assert not clock.follow(NOW_MS, told(NOW_MS + 1_000))
    assert not clock.follow(NOW_MS, told(NOW_MS + 59_000))
    assert clock.follow(NOW_MS, told(NOW_MS + 90_000))


@pytest.mark.parametrize("off_ms", [3_600_000, -3_600_000])
def test_what_was_read_before_a_correction_is_old(off_ms: int) -> None:
    """Both clocks of a suspended host stood still: only the store tells."""
    clock = StoppedClock()
    read = moment(clock)
    assert age_s(clock, read) == 0
    clock.follow(NOW_MS, told(NOW_MS + off_ms))
    assert age_s(clock, read) > 3_500


@pytest.mark.parametrize("off_ms", [73 * 365 * 86_400_000, -3_600_000])
def test_a_date_that_the_signature_contradicts_is_not_believed(off_ms: int) -> None:
    """A proxy's wrong `Date` ended every stream with a TTL. It can be true only if the call was refused."""
    clock = StoppedClock()
    date = formatdate((NOW_MS + off_ms) / 1000, usegmt=True)
    assert not clock.follow_date(NOW_MS, date, NOW_MS)
    assert clock.now_ms() == NOW_MS
    assert clock.follow_date(NOW_MS, date, None)
    assert abs(clock.now_ms() - (NOW_MS + off_ms)) <= 1_000
