"""The operators of aggregations, one module per family."""
