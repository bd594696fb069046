"""The one cache of values: its bound, its order, and how values age. Threads, and the deadline that they keep."""

from __future__ import annotations

import threading

import pytest

from headrace.clock import Bounded, Threads, age_s, check_deadline, moment, within_deadline
from headrace.errors import DeadlineExceeded
from tests.support.clocks import ManualClock


def test_what_was_used_least_recently_goes() -> None:
    cache: Bounded[str, int] = Bounded(2)
    assert cache.put("a", 1) == cache.put("b", 2) == []
    assert cache.get("a") == 1
    assert cache.put("c", 3) == [("b", 2)]
    assert [cache.get(key) for key in "abc"] == [1, None, 3]


def test_weights_count_once_and_what_weighs_too_much_alone_is_not_kept() -> None:
    cache: Bounded[str, str] = Bounded(5, weigh=len)
    cache.put("a", "xx")
    cache.put("a", "xxx")
    assert cache.put("b", "xx") == []
    assert cache.put("c", "xxxx") == [("a", "xxx"), ("b", "xx")]
    assert cache.put("c", "xxxxxx") == [("c", "xxxxxx")]
    assert cache.get("c") is None
    assert cache.put("d", "xxxxx") == []
    assert cache.pop("d") == "xxxxx"
    assert cache.pop("d") is None
    cache.clear()
    assert len(cache) == 0
    assert cache.put("e", "xxxxx") == []


def test_a_value_is_loaded_once() -> None:
    cache: Bounded[str, list[int]] = Bounded(2)
    first = cache.load("a", lambda: [1])
    assert cache.load("a", lambda: [2]) is first


def test_an_update_sees_what_is_kept() -> None:
    cache: Bounded[str, int] = Bounded(2)
    assert cache.update("a", lambda kept: max(5, kept or 0)) == 5
    assert cache.update("a", lambda kept: max(3, kept or 0)) == 5
    assert cache.get("a") == 5


def test_age_is_what_the_faster_clock_says() -> None:
    clock = ManualClock()
    cache: Bounded[str, int] = Bounded(2, clock=clock)
    cache.put("a", 1)
    clock.advance(1)
    assert cache.get("a", max_age_s=1) == 1
    clock.set_back(-10)  # the process was frozen: only the wall clock went on
    assert cache.get("a", max_age_s=1) is None
    assert cache.get("a") == 1
    read = moment(clock)
    clock.advance(3)
    cache.put("a", 2, read=read)
    assert cache.get("a", max_age_s=2) is None
    assert cache.get("a", max_age_s=3) == 2


def test_a_wall_clock_that_ran_backwards_makes_everything_old() -> None:
    clock = ManualClock()
    read = moment(clock)
    clock.set_back(1)
    assert age_s(clock, read) == float("inf")


def late(_: object = None) -> str:
    check_deadline(lambda: 1.0)
    return threading.current_thread().name


def test_a_pool_thread_has_the_deadline_of_its_caller_and_of_no_earlier_one() -> None:
    threads = Threads(2, "pool")
    assert all(name.startswith("pool") for name in threads.map(late, "abc"))
    with within_deadline(1000, lambda: 0.0), pytest.raises(DeadlineExceeded):
        threads.map(late, "abc")
    assert all(name.startswith("pool") for name in threads.map(late, "abc"))
    assert threads.map(str, [3]) == ["3"]


def test_of_two_deadlines_the_sooner_counts() -> None:
    with within_deadline(1000, lambda: 0.0), within_deadline(9000, lambda: 0.0), pytest.raises(DeadlineExceeded):
        late()
    with within_deadline(9000, lambda: 0.0):
        with within_deadline(1000, lambda: 0.0), pytest.raises(DeadlineExceeded):
            late()
        late()
    late()


def test_a_call_that_fails_waits_for_those_under_way() -> None:
    begun, raised, ended = threading.Event(), threading.Event(), []

    def put(name: str) -> None:
        if name == "fails":
            assert begun.wait(10)
            raise ValueError(name)
        begun.set()
        raised.wait(0.2)  # returns at once if the error is raised first
        ended.append(name)

    with pytest.raises(ValueError, match="fails"):
        Threads(2, "pool").map(put, ["fails", "slow", "never"])
    found = list(ended)
    raised.set()
    assert "slow" in found
