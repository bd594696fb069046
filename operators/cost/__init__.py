"""What Headrace costs: a workload times counted calls times a dated price table. Pure, but for reading its data files."""
