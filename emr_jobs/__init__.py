"""Index jobs: from published segments to runs, on Spark. Known to them are objects and formats, but no table and no log.

    main       the entry point of every job run: `python -m emr_jobs.main --bucket B --input KEY`
    job        what a job run does, from its input object to its result object
    build      segments -> partial rows          compact    runs -> partial rows
    layout     partial rows, each family together and in order
    parts      ordered rows -> Parquet objects of runs
    merge      small segments -> one that holds the same records
    verify     runs read back and compared with their segments
    extract    what a segment's records say, without Spark

One job run makes many runs, of many logs. Segments and parts are fetched and put by the Python workers, so that the same
code runs on EMR Serverless and on a laptop without any connector of Hadoop. A run exists once its descriptor does, which
the driver creates last: killed at any moment, a job run leaves objects that nobody reads, and repeated it finishes.
"""
