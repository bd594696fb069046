"""The query engine: answers searches, aggregates and lists of routing keys from index runs, unindexed segments and the
tail.
"""
