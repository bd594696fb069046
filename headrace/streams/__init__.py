"""Streams: the surface whose names hold records of one content type, which clients append, read, close and fork.

values     names, the state of a stream, requests and answers
errors     errors that only streams have
decide     the rules, pure (`headrace.log.seam`)
prepare    checks and normalizes the records of an append under a definition
profiles   what the records of a stream mean
verbs      the verbs as one object, for HTTP handlers
"""
