"""Estimates what Headrace costs: a workload, times counted AWS calls per operation, times a dated price table. Does no
I/O, except to read its data files.
"""
