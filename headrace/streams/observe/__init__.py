"""One request as a stream of events and a stream of spans tell of it. Pure: the searches are arguments.

lookup      the request for a view, and what is looked up where
trace       the spans of a trace as a forest: root, critical path, calls between services
view        the document that joins what was found

Its members are those of Prisma Streams (`POST /v1/observe/request`).
"""
