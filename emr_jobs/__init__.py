"""Index jobs on Spark: they build index runs from published segments. They know objects and formats, but no table and
no log.

    main       the entry point of every job: `python -m emr_jobs.main --bucket B --input KEY`
    job        what a job does, from its input object to its result object
    build      turns segments into partial rows
    compact    turns existing runs into partial rows
    layout     groups and sorts partial rows by family
    parts      writes sorted rows as the Parquet objects of runs
    merge      merges small segments into one that holds the same records
    verify     reads runs back and compares them with their segments
    requested  runs a job that a surface asked for: of feature tables fold, snapshot and asof
    events     turns segments into the events of entities, in order
    states     folds them
    extract    computes what a segment's records add to each family, without Spark

A run's rows are divided into families: `kw` (keyword postings), `fts` (full-text postings), `lex` (routing keys), `col`
(columns), `agg` (rollup groups) and `mblk` (metric intervals).

One job makes many runs, of many logs. The Python workers themselves fetch segments and write parts, so that the same
code runs on EMR Serverless and on a laptop without any Hadoop connector. A run exists once its descriptor does, which
the driver creates last: a job that is killed leaves objects that no reader looks at, and a repeated job finishes the
work.
"""
