"""The commit protocol and everything that is on it.

requests   what callers ask and get: plain values
decide     the rules, pure: state and request to new state, duplicate or refusal
stores     the ports of one process, its clock, settings and memory
picture    what this process knows of a log, and how old that is
commit     one entry into one slot: lost answers, unknown outcomes, the ack fence
append     group commit
create, fork, delete, expire    the control verbs
read       joins segments and tail
prune      which published records a read must look at, by index runs
logs       the verbs as one object, for handlers
"""
