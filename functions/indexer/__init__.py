"""The indexer: has job runs build, compact and rebuild index runs, and publishes them.

handler      the Lambda entry: events to verbs, verbs to metrics; the frame is `functions/worker.py`
context      what the verbs act on
policy       pure: what of a log is due, which tasks that gives, when to look again
look         verbs: notes that a log waits; finds logs that every event missed (audit)
start        verb: gathers the work of many logs and starts one job run for it
runs         port: job runs, on EMR Serverless; the objects that tell a job its task and hold its answer
follow       verb: asks what became of job runs, publishes what they made, frees their places
retire       verbs: removes what no reader can hold and what nothing names; rebuilds a log's runs

No verb is needed for correctness twice: what is published is decided by create-if-absent on the index manifest alone, so
each may run twice, at once, late, or not at all.
"""
