"""The deterministic simulation: real verbs on memory adapters, one thing at a time, everything decided by a seed.

    coroutines  actors of which exactly one runs
    scheduler   simulated time, and who is next
    waiting     the engine's locks and events, in simulated time
    plan        a seed's operations and its profile, as values
    stages      scripted beginnings of some plans, for hazards that chance seldom brings about
    faults      what can go wrong at which store call
    ports       store calls as scheduling points and fault points
    world       processes, stores, the stream and the queue
    log_model   what the model knows of one log
    model       the sequential model of each log, and what it forbids at the stores
    topics      the same for topics, and what commits may do to them
    queues      and for the jobs of queues
    laws        what may take effect at the tables, and how everything comes to rest
    limits      what may be counted
    bucket_laws what may take effect at the bucket
    answers     what callers may be told
    topic_answers the same about topics and queues
    definitions schemas that can be checked at a glance, and what they make of records
    operations  runs one planned operation: clients' here,
    topic_operations those on topics and queues,
    background  the sealer's,
    outside     and those that no process does
    disaster    every process dies, tables go back in time or are lost, and an operator recovers
    tables      copies of the tables, each of its own moment
    rewind      what the oracle holds true after that
    aftermath   the laws of the recovery
    run         one seed from plan to verdict
    shrink      a smaller plan that fails in the same way
    mutants     broken variants that the laws must notice; mutated_steps, _sealer and _topics hold what they put in place,
    mutant      and how one is put in place

`python -m tests.simulation --help` says how to run it.
"""
