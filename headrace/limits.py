"""The fixed limits of the engine, each with its reason."""

from __future__ import annotations

import re

CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # C0, DEL and C1 steer terminals: none is in a name
MAX_NAME_BYTES = 1024  # room under DynamoDB's 1,024-byte sort key
MAX_APPEND_BYTES = 10 * 1024 * 1024  # the body limit of the Prisma Streams server
MAX_RECORDS_PER_APPEND = 100_000  # one append never exceeds the records of one segment
MAX_PRODUCER_ID_BYTES = 256  # eight of them are in every entry
MAX_SEQ_BYTES = 256  # Stream-Seq is in every entry
MAX_SAFE_INTEGER = 2**53 - 1  # producer epoch and seq, for JavaScript clients (protocol § 5.2.1)
PRODUCERS_IN_STATE = 8  # the rest live in their own table; keeps entries small
MAX_COMPANIONS = (
    48  # of a name: it ends in one transaction of at most 100 items, two for each of its logs and one more
)
MAX_FORK_DEPTH = 64  # a lineage is carried whole in the catalog row and each manifest

PAGE_BYTES = 4 * 1024 * 1024  # maximum record data in a page of a read; a buffered door lowers it further
PAGE_RECORDS = 100_000  # maximum records in a page: bounds the memory overhead of tiny records

MAX_NOTE_BYTES = 300 * 1024  # an item of DynamoDB holds 400 KB

FILTER_SCAN_BYTES = 100 * 1024 * 1024  # payload that one filtered read looks at (seed-streams-http.txt)
SCAN_CHUNK_BYTES = 1024 * 1024  # payload that a scan fetches at a time

GROUP_REQUESTS = 80  # group commit takes at most this many requests (each can cost a guard, see wal.MAX_GUARDS) ...
GROUP_BYTES = 8 * 1024 * 1024  # ... or this much payload

QUEUE_REQUESTS = 50_000  # writes that one process has under way (the queue of the Prisma Streams server) ...
QUEUE_BYTES = 64 * 1024 * 1024  # ... or this much of their bodies

MAX_TTL_MS = 100 * 365 * 24 * 3600 * 1000  # a century: keeps deadlines inside every number format used
