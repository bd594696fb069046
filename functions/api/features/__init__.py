"""The surface of feature tables over HTTP: `/register`, `/push`, `/get` and others, each also below
`/features/{namespace}`. Each route parses a request, calls one verb of `headrace.features`, and builds the answer. Sections
of the contract are named as "§ 4".

calls         what all routes share: the surface and its errors, one request, its JSON body, its answer
registrations register, reset, ping, the registry, readiness
pushes        events, one by one or in batches
reads         the features of entities
exports       jobs: snapshots, training sets, and back-fills
openapi.json  the OpenAPI document of all routes
"""
