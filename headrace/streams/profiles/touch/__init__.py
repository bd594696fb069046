"""Touch: requests that wait for a change of a table, and the test whether a record is such a change.

Nothing here keeps state. What a record touches is computed from the log for each request. Only the templates (the
predicates for which keys are computed) are kept, in a document that the caller stores.

config      settings of the profile document
keys        the names of things that can be touched, as 64-bit hashes
templates   the document of active templates
cursor      a position up to which a client has seen changes
wait        parses what a request waits for, and tests by the keys that a record touches whether it wakes the request
activate    the request and answer of template activation
meta        the state document
"""
