"""Segments: immutable Parquet objects that hold a contiguous range of records.

One row group, zstd 3, data pages of about 48 KB. Columns: `offset` INT64 and `append_time` TIMESTAMP(ms) delta-encoded,
`key` BYTE_ARRAY (UTF8) optional, `data` BYTE_ARRAY, REQUIRED and PLAIN, so that one page of `data` can be fetched by byte
range and decoded without a Parquet library, while DuckDB, Athena and Spark read the object as it is. Columns `node`, `hops`
and `meta` (as `data`) are there where records have them.

Beside each segment is its *key page*: key → rows, and each row's node, size, hops and append time.

    descriptor   what a manifest says about a segment; no I/O
    writer       records to bytes (the only module that imports pyarrow)
    reader       ranged reads of records through an `Objects` port (never imports pyarrow)
"""
