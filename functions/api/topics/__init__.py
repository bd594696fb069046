"""The surface of topics and queues over HTTP (`/v0`). Each route parses a request, calls one verb of `headrace.queues`,
and builds the answer. Sections of the contract are named as "§ 4".

calls         what all routes share: the surface, one request, its JSON body, its answer
config        the configuration of a topic in requests and answers
records       the records of a request, and of an answer: their bytes are never parsed and written again
topics        create, show, list and delete topics
appends       append, read (diff) and delete records
jobs          claim, ack, nack, extend
work          the stream of jobs
health        health, readiness, metrics
openapi.json  the OpenAPI document of all routes
"""
