"""Rebuilding the tables from the bucket, and checking that everything stored agrees. Runs on the ports alone.

    report   what both say, as values, and where checks note what they find
    survey   what the bucket and the tables say of every log: one listing, then a few small reads for each log
    plan     pure: from the survey to what must be written, and what is lost
    recover  writes it
    names    which logs a name stands for, and which must have ended
    verify   walks one log, or every log, end to end: `bucket` its objects and indexes, `chain` its entries

**What recovery rests on.** The newest manifest of a log holds everything published and the state as of its end. Where
the write-ahead log is empty or ends before that, the published end becomes the log's end: one entry of kind `recover` is
written right behind the manifest, names the manifest's last entry as its predecessor, and carries the manifest's state.
What had been acknowledged behind it is lost, and its offsets will be used again; so the entry raises the incarnation, to
the time in seconds, which was never in force before. Cursors from before stay valid up to the recovered end, and are
answered with 410 beyond it.

The entry is published in a generation of its own *before* it is written, so a second disaster can't forget it (unless it
is of a fork that was not published, and whose source is not published so far). Then the rows of its producers go, which
may tell of lost writes. Then entry and catalog row commit together, then the watermark is set. A crash between leaves a
log that the next run recovers again, one incarnation higher. Companions come before their main log, whose row names them.

**Writers must not run meanwhile.** A writer that remembers the lost tail would find its slot free. Rebuild into new
tables, or stop every process first.
"""
