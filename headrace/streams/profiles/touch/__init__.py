"""Touch: who waits for a change of a table, and whether a record is one.

Nothing here remembers anything. What a record touches is derived from the log again whenever somebody asks; only the
templates, the predicates worth deriving, are kept in a document that the caller stores.

config      settings of the profile document
keys        names of things that can be touched, as 64-bit hashes
templates   the document of active templates
derive      a change record to the keys it touches
cursor      how far somebody has seen
wait        what a request waits for, and whether a record wakes it
activate    the request and answer of template activation
meta        the state document
"""
