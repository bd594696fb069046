"""The surface of streams over HTTP. Each route parses a request, calls one verb of `headrace.streams`, and builds the
response.

records       create, append, close, describe, delete; names and headers of all requests
live          read, follow; `reads` parses requests and builds pages
definitions   `_schema` and `_profile`
observe       `/v1/observe/request`: events and spans of one request
otlp          `_otlp/…`, `/v1/traces`, `/v1/logs`: spans and logs of OpenTelemetry
search        `_search`, `_aggregate`, `_routing_keys`
several       `/v1/search`: a search of several streams
touch         `touch/*`
inspection    documents for operators
system        the server's own stream of metrics
openapi.json  the OpenAPI document of all routes
"""
