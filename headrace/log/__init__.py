"""The commit protocol and everything that is on it: a log that knows no surface.

seam       what a surface decides and is given to decide on; rules that surfaces share
context    the ports of one process, what it remembers of logs, and what the verbs of one surface share
commit     one decision into the slots of one log or of several: lost answers, unknown outcomes, the ack fence
append     group commit: look, decide, commit, and again when another writer was first
control    the same for everything else that changes a log; expiry, deletion, release of forks
tail       reading the write-ahead log of one log; payloads
join       what is published and what is not, joined
requests   what callers ask of reads and get: plain values
read       pages of records
since      the position of a time
view       how a read shows records
prune      which published records a read must look at, by index runs
logs       the log as one object, for surfaces
"""
