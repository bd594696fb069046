"""The surface of streams over HTTP. Each route translates, calls one verb of `headrace.log`, and translates back.

records       create, append, close, read, follow, describe, delete
queries       query strings; `pages`, `live`: the answers of reads
definitions   `_schema` and `_profile`
search        `_search`, `_aggregate`, `_routing_keys`
touch         `touch/*`
inspection    what operators see
system        the server's own stream of metrics
openapi.json  all of it for machines
"""
