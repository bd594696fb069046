"""The query language: the search configuration of a stream, queries as text and as values, and whether a record
matches.

canonical    the search configuration, and the canonical form in which values of records and queries are compared
grammar      parses the text of a query, and checks it against the configuration
query        queries as values, and whether a record matches one

Nothing here knows how records are stored or read.
"""
