"""The query engine: `language` (pure functions on requests and values) and `engine` (reads runs, segments and the
tail).
"""
