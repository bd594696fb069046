"""The surface of streams over HTTP. Each route translates, calls one verb of `headrace.streams`, and translates back.

records       create, append, close, describe, delete; names and headers of all requests
live          read, follow; `reads`: what is asked, and pages as answers
definitions   `_schema` and `_profile`
search        `_search`, `_aggregate`, `_routing_keys`
touch         `touch/*`
inspection    what operators see
system        the server's own stream of metrics
openapi.json  all of it for machines
"""
