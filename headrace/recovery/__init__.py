"""Recovery, which rebuilds the tables from the bucket, and verification, which checks that everything stored is
consistent. Both use only the ports.

    report   the results of both, as values, and where checks note what they find
    survey   reads the facts of every log from bucket and tables: one listing, then a few small reads for each log
    plan     pure: decides from the facts what must be written, and what is lost
    recover  writes what the plan says
    names    which logs a name stands for, and which must have ended
    verify   walks one log, or every log, end to end: its entries, and in `bucket` its objects and indexes

**What recovery rests on.** The newest manifest of a log holds everything published and the state as of its end. Where
the write-ahead log is empty or ends before that, the published end becomes the log's end: one entry of kind `recover`
is written right behind the manifest, names the manifest's last entry as its predecessor, and has the manifest's state.
Later acknowledged records are lost, and their offsets will be used again. So the entry raises the incarnation, to the
current time in seconds, which was never used before. Older cursors stay valid up to the recovered end; beyond it they
are answered with 410.

The entry is published in a generation of its own *before* it is written, so that a second disaster can't lose it
(unless it belongs to an unpublished fork whose source is not published so far either). Then the rows of its producers
are removed, since they may describe lost writes. Then entry and catalog row commit together, then the watermark is set.
After a crash in between, the next run recovers the log again, one incarnation higher. Companions come before their main
log, whose row names them.

**Writers must not run meanwhile.** A writer that has cached the lost tail would find its slot free. Rebuild into new
tables, or stop every process first.
"""
