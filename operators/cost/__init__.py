"""What Headrace costs: a workload times counted calls times a dated price table. Pure, except for reading its data
files.
"""
