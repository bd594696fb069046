"""A relay that comes when the stream that it is to follow is over: `python -m tests.e2e.late_follower NAME`.

It ends the stream itself, as any process that notices first, and lists its manifests, of which it has none. It also writes
an object of removed records, as a router does whose source lost so many records that its destination has no room to say so.
"""

from __future__ import annotations

import os
import sys

from headrace.aws import aws_stores
from headrace.errors import Gone, NotFound
from headrace.objects import keys
from headrace.settings import Settings
from headrace.streams.values import STREAMS
from headrace.streams.verbs import Streams
from headrace.tables.follows import Follow


def main(name: str) -> None:
    """Exits with an error when the stream can still be followed."""
    stores = aws_stores(Settings.from_environment(os.environ), "us-east-1", dynamodb_timeout_s=5, s3_read_timeout_s=5)
    row = stores.catalog.get(STREAMS, name)
    assert row is not None
    assert stores.manifests().standing(row.log_id) == []
    stores.objects.put(keys.removed(row.log_id, 1, "n"), b"")
    try:
        Streams(stores).follow(name, Follow(row.log_id, "router", "late"))
    except (Gone, NotFound):
        ended = stores.catalog.get(STREAMS, name)
        assert ended is not None and ended.ended
        return
    raise AssertionError("a stream that is over was followed")


if __name__ == "__main__":
    main(*sys.argv[1:])
