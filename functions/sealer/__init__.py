"""The sealer: turns the write-ahead log into published segments, and removes what is no longer needed.

handler      the Lambda entry: events to verbs, verbs to metrics; the frame is `functions/worker.py`
context      what the verbs act on
policy       pure: when is a log due, what goes into one segment, which delayed messages an entry asks for
seal         verb: unsealed entries to segment, manifest, watermark
trim         verbs: removes entries that are published and old, and objects that nothing names (orphans)
purge        verb: removes a log that has ended
audit        verbs: finds logs that every event missed; expires logs whose deadline has passed (sweep)
"""
