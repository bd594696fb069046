"""The sealer: turns the write-ahead log into published segments, and removes what is no longer needed.

handler      the Lambda entry: from events to verbs, from verbs to metrics; the frame is `functions/worker.py`
context      what the verbs need: stores, settings, clock
policy       pure: when a log is due, what fits into one segment, which delayed messages an entry needs
seal         verb: writes unsealed entries as a segment, and publishes it
trim         verbs: removes entries that are published and old, and objects that nothing names (orphans)
purge        verb: removes a log that has ended
audit        verbs: finds logs that every event missed; expires logs whose deadline has passed (sweep)
"""
