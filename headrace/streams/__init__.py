"""Streams: names that hold records of one content type, which clients append, read, close and fork.

values     names, what is kept in the state of a log, what callers ask and get
errors     what else can be wrong with a request to a stream
decide     the rules, pure (`headrace.log.seam`)
prepare    what an append writes under a definition
profiles   what the records of a stream mean
verbs      the verbs as one object, for handlers
"""
