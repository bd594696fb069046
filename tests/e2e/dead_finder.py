"""What the indexer does before a scrub: finds the done jobs of a queue. `python -m tests.e2e.dead_finder LOG LEAST`."""

from __future__ import annotations

import os
import sys

from headrace.aws import aws_stores
from headrace.settings import Settings
from headrace.surfaces import find_dead


def main(log: str, least: int) -> None:
    """Exits with an error if fewer than `least` records are found."""
    stores = aws_stores(Settings.from_environment(os.environ), "us-east-1", dynamodb_timeout_s=5, s3_read_timeout_s=5)
    manifest = stores.manifests().newest(log, None, 0)
    assert manifest is not None
    dead = find_dead(stores)(manifest, stores.clock.now_ms())
    assert sum(end - first for first, end in dead.runs) >= least, dead.runs


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
