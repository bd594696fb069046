"""The schemas of a log's records: a registry of JSON schemas, their evolution by lenses, and the search configuration.

jsontext       parses and writes JSON; JSON pointers
draft07        finds the subschemas of a schema, and bounds the cost of checking a document
validate       validates documents against a schema
lens           converts documents of one schema version to the next
search_config  the search configuration: fields, aliases, rollups
registry       all of these for one log, and how an update changes them

All functions here are pure: the result depends only on the arguments.
"""
