"""The indexer: has job runs build, compact and rebuild index runs, and publishes them.

handler      the Lambda entry: events to verbs, verbs to metrics; the frame is `functions/worker.py`
context      what the verbs act on
policy       pure: what of a log is due, which tasks that gives, when to look again
picture      what the stores say of one log
look         verb: notes that a log waits
start        verb: gathers the work of many logs and starts one job run for it
follow       verb: asks what became of job runs, and settles those that are over
publish      the runs that a job made, into the index manifests
retire       verb: removes the objects of runs that no reader can hold
rebuild      verb: retires all runs of a log, so that they are built anew
orphans      verb: removes objects of runs that nothing names
audit        verb: finds logs that every event missed
inputs       the two objects of a job: what it is told, what it answers
runs         port: job runs, on EMR Serverless
submit       pure: what EMR Serverless is asked

No verb is needed for correctness twice: what is published is decided by create-if-absent on the index manifest alone, so
each may run twice, at once, late, or not at all.
"""
