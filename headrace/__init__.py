"""Headrace: durable streams on a serverless AWS account.

The life of a record. An api function commits it to the write-ahead log (`wal`) with one conditional put: that write is
the acknowledgement. The sealer turns a run of log entries into a Parquet `segment`, and publishes it by creating the
next `manifest` generation: from then on the bucket alone is enough to read it. Entries that a manifest covers are
trimmed later. A read joins segments and the tail of the write-ahead log.

Words: a *log* is one incarnation of a named stream; an *entry* is one item of its write-ahead log, at a *slot*; a
*record* is one message, at an *offset*; a *cursor* names the position from which a reader continues.
"""

VERSION = "0.1.0"
"""The version of this release. It equals that of `pyproject.toml`, which is not available inside a function."""
