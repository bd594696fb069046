"""The query language: the search configuration of a stream, queries as text and as values, and whether a record
matches.

canonical    the search configuration, and the canonical form in which values of records and queries are compared
grammar      parses the text of a query to syntax
query        checks syntax against a configuration, and evaluates the query on a record's values

Nothing here knows how records are stored or read.
"""
