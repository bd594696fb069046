"""The surface of queues: topics whose records are jobs, which workers lease.

A queue is a topic of type `queue` with a companion log, its lease log (role `leases`), whose records are events: claim,
ack, nack, extend, release, dead letter, remove, configure, and the joins and deals of a claim window. Who holds which job
is the projection of these events, which is kept in the lease log's state.

    events       the events, as JSON records
    projection   who holds what: a fold of the events
    timings      what each event adds to the timings of its queue, and the built-in definition that adds it up
    ledger       the projection in the lease log's state, and one decision's changes to it
    feed         the jobs' records for one decision
    decide       claims, acks, nacks, extends and releases
    cohort       claim windows
    dead_letter  jobs that were delivered too often
    remove       deletes of jobs
    configure    changes of the configuration
    forget       what is done leaves the jobs log
    surface      all of these as the log knows them
    verbs        all of it as one object, beside the verbs of topics
"""
