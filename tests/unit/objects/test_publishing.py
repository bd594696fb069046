"""Publication has one winner, and a lost answer is found again."""

from __future__ import annotations

import threading

import pytest

from headrace.errors import StoreThrottled, StoreTimeout
from headrace.objects.memory import MemoryObjects
from headrace.objects.packed import publish
from tests.support.shaky import ShakyObjects


def test_of_many_publishers_one_wins() -> None:
    objects = MemoryObjects()
    won: list[bytes] = []
    barrier = threading.Barrier(8)

    def run(mine: bytes) -> None:
        barrier.wait()
        if publish(objects, "k", mine):
            won.append(mine)

    threads = [threading.Thread(target=run, args=(b"%d" % number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [objects.get("k")]


@pytest.mark.parametrize(
    "creates", [["lost after"], ["lost before"], ["lost before", "lost after"], ["lost before"] * 3]
)
def test_a_lost_answer_is_found_again(creates: list[str]) -> None:
    objects = ShakyObjects()
    objects.creates = creates
    assert publish(objects, "k", b"mine")
    assert objects.get("k") == b"mine"


def test_a_lost_answer_to_the_loser_is_a_loss() -> None:
    objects = ShakyObjects()
    assert publish(objects, "k", b"theirs")
    objects.creates = ["lost after"]
    assert not publish(objects, "k", b"mine")
    assert objects.get("k") == b"theirs"


@pytest.mark.parametrize(
    ("creates", "reads"),
    [
        (["lost before"] * 9, []),
        (["lost after"], ["lost"] * 9),
        (["lost after"], ["throttled"]),
        (["lost before", "throttled"], []),
    ],
)
def test_a_publication_that_stays_unclear_says_so(creates: list[str], reads: list[str]) -> None:
    objects = ShakyObjects()
    objects.creates, objects.reads = list(creates), list(reads)
    with pytest.raises(StoreTimeout):
        publish(objects, "k", b"mine")


def test_what_is_throttled_was_not_published() -> None:
    objects = ShakyObjects()
    objects.creates = ["throttled"]
    with pytest.raises(StoreThrottled):
        publish(objects, "k", b"mine")
    assert list(objects.list("")) == []
