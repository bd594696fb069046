"""Streams: the surface whose names hold records of one content type, which clients append, read, close and fork.

values     names, the state of a stream, requests and answers
errors     errors that only streams have
verbs      the verbs as one object, for HTTP handlers, and the rules of an append, pure (`headrace.log.seam`)
create     the rules of creating and forking, pure as well
profiles   what the records of a stream mean; checks and normalizes them under a definition
"""
