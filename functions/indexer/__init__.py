"""The indexer: starts job runs that build, compact and rebuild index runs, and publishes the results.

handler      the Lambda entry: from events to verbs, from verbs to metrics; the frame is `functions/worker.py`
context      what the verbs need: stores, settings, clock
policy       pure: what is due for a log, the tasks that follow, when to look again
look         verbs: look (notes that a log waits) and audit (finds logs that every event missed)
start        verb: gathers the work of many logs and starts one job run for it
requests     verb: starts a job that a surface asked for
runs         port: job runs on EMR Serverless; the input and result objects of a job
follow       verb: asks for the state of job runs, publishes their results, and frees their places
retire       verbs: remove runs that no reader can use and objects that nothing names; rebuild a log's runs

Only create-if-absent on the index manifest decides what is published. So each verb may run twice, several times at
once, late, or not at all.
"""
