"""A writer that slept while its slot was sealed and trimmed: `python -m tests.e2e.late_writer LOG STEP`.

`meanwhile` writes what the others did, `late` what the sleeper does in the end; in between it is another process, which
may act in another role. Entries are built in one order, so both processes know the same ones.
"""

from __future__ import annotations

import os
import sys

from headrace.aws import aws_stores
from headrace.clock import Budget, Moment
from headrace.errors import OutcomeUnknown
from headrace.log.commit import Attempt
from headrace.log.context import Context
from headrace.settings import Settings
from headrace.streams.verbs import SURFACE
from headrace.wal import Committed
from tests.support.builders import first_entry, next_entry

SLEPT_S = 3600


def main(log: str, step: str) -> None:
    """Exits with an error when the store or the fence does not do what it should."""
    settings = Settings.from_environment(os.environ)
    stores = aws_stores(settings, "us-east-1", dynamodb_timeout_s=5, s3_read_timeout_s=5)
    first = first_entry(log, b"0")
    second = next_entry(first, b"1")
    newest = next_entry(second, b"2")
    late = next_entry(first, b"late")
    if step == "meanwhile":
        for entry in (first, second, newest):
            assert stores.wal.commit(entry) == Committed()
        assert stores.watermarks.publish(log, 1, newest.next_slot(), 3, 3)
        stores.wal.remove(log, [first.slot, second.slot])
        return
    context = Context(stores, SURFACE)
    now = context.pictures.read_time()
    read = Moment(now.monotonic - SLEPT_S, now.wall_ms - SLEPT_S * 1000)
    try:
        Attempt(context, Budget(stores.clock, 3000)).put(late, [], read)
    except OutcomeUnknown:
        assert [entry.slot for entry in stores.wal.read(log).entries] == [newest.slot], "the dead item is left"
        return
    raise AssertionError("the fence let a dead item pass")


if __name__ == "__main__":
    main(*sys.argv[1:])
