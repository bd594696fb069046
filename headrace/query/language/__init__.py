"""Asking for records: what a stream lets one ask, the query language, and whether a record matches.

canonical    the search configuration, and the form in which its fields are compared, in records and queries alike
grammar      text of a query to its syntax
query        syntax and configuration to a query, checked; a query and a record's values to yes or no

Nothing here knows how a record is stored or read.
"""
