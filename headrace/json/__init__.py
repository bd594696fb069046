"""What the records of a stream look like: a registry of JSON schemas, how they evolve, and what is searched in them.

jsontext       JSON as bytes and as values
pointer        JSON pointers
draft07        where the subschemas of a schema are, and what checking a document against it can cost
validate       documents against a schema
lens           documents of one version as documents of the next
search_config  what is searched
registry       all of a stream's together, and how an update changes it

Everything here is a function of its arguments.
"""
