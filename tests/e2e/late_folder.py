"""What the folder and registrations do seldom: `python -m tests.e2e.late_folder STEP …`.

`drop LOG`, in the role of the folder: rows of a generation go that no registration names, and more work is asked for.
`open`: a registration whose process dies before the lanes of its event exist.
"""

from __future__ import annotations

import os
import sys
from unittest import mock

from functions.fold_queue import Fold
from functions.folder.context import open_context
from headrace.aws import aws_stores
from headrace.features.register import Registrations
from headrace.settings import Settings
from headrace.tables.features import Key, StateRow
from tests.unit.features.world import NS, event


def main(step: str, log: str = "") -> None:
    """Exits with an error when rows stay."""
    if step == "open":
        settings = Settings.from_environment(os.environ)
        stores = aws_stores(settings, "us-east-1", dynamodb_timeout_s=5, s3_read_timeout_s=5)
        with mock.patch.object(Registrations, "finish"):
            Registrations(stores).register(NS, {"nodes": [event("Left")]})
        return
    context = open_context()
    table = context.folder.table
    assert table.put(StateRow(Key(log, "gone.0.0", "e"), 1, b""), None)
    assert table.remove(log, "gone.0.0")
    assert not list(table.rows(log, "gone.0.0"))
    context.queue.send([Fold(log, f"{NS}/Tx", again="late")], context.stores.clock.now_ms())


if __name__ == "__main__":
    main(*sys.argv[1:])
