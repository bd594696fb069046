"""Segments: immutable Parquet objects that hold a contiguous range of records.

One row group, zstd 3, data pages of about 48 KB. Columns: `offset` INT64 and `append_time` TIMESTAMP(ms) delta-encoded,
`key` BYTE_ARRAY (UTF8) optional, `data` BYTE_ARRAY, REQUIRED and PLAIN. So one page of `data` can be fetched by byte
range and decoded without a Parquet library, while DuckDB, Athena and Spark read the object as it is. Columns `node`,
`hops` and `meta` (encoded like `data`) exist if a record has such a value.

Beside each segment is its *key page*: the rows of each key, and each row's node, sizes, hops and append time.

    descriptor   a segment as a manifest describes it; no I/O
    writer       encodes records as bytes (the only module that imports pyarrow)
    reader       reads records by ranges through an `Objects` port (never imports pyarrow)
    columns      reads records with all columns, and facts about them, with a cache of key pages
"""
