"""The query engine: search, aggregates and routing keys over index runs, segments without an index, and the tail."""
