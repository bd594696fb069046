"""Benchmark of search: a million request logs, indexed and asked. `python -m benchmarks.search --help`."""
