"""The log: the commit protocol, and reading, listing and control verbs built on it. It knows no surface.

seam       the interface to surfaces: decisions and their inputs; rules that surfaces share
context    what the verbs of one surface share in one process: stores, the cache of logs, the appends that wait
commit     commits one decision to one log or to several: lost answers, unknown outcomes, the ack fence; for appends,
           the loop that reads, decides, commits, and repeats if another writer was first
control    the same loop for everything else that changes a log; expiry, deletion, release of forks
join       reads the tail and joins it with the published part; payloads
times      finds the position of a time
requests   the arguments and results of reads, as plain values
read       reads pages of records: their data, or all their columns
view       selects and promotes the records of a page
tags       finds records by key, and tells the sizes of records, without reading data
prune      uses index runs to find the records that a read must look at
logs       the verbs as one object, for surfaces
"""
