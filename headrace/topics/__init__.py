"""The surface of topics: logs of JSON records with tags, nodes, caps, TTLs and selective deletes.

    values       names, configuration, the topic's part of a log's state, requests and answers
    runs         sets of offsets as runs: which records were removed
    retention    where the live records begin: caps, TTLs, deletes
    live         what must be read to know the live records
    decide       appends, and deletes of records
    configure    creates, and changes of the configuration
    erase        which records a delete is about
    diff         what a reader gets after a cursor
    feeds        what routers append to a topic
    fields       the search configuration
    priority     which topics matter now
    verbs        all of it as one object

`seq = offset + 1` everywhere: the contract counts from 1, the log from 0. Offsets end at this folder; answers have seqs.
"""
