"""Index runs: the objects that Spark jobs build from published segments, and the code that reads them. docs/formats.md
has every byte.

A run is one immutable unit of coverage: a range of a log's offsets, under one plan, in up to six families of Parquet
objects, named by one descriptor. A run without a descriptor does not exist; a run that the index manifest does not name
is not read.
"""
