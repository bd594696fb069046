"""Asking for records: what a stream lets one ask, the query language, and whether a record matches.

config       the search configuration, as values
canonical    the form in which a field's values are compared, of records and of queries alike
grammar      text of a query to its syntax
query        syntax and configuration to a query, checked
match        a query and a record's values to yes or no

Nothing here knows how a record is stored or read: values come from `headrace.json.extract`.
"""
