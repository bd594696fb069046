"""Index jobs: from published segments to runs, on Spark. Known to them are objects and formats, but no table and no log.

    main       the entry point of every job: `python -m emr_jobs.main --bucket B --input KEY`
    job        what a job does, from its input object to its result object
    build      segments -> partial rows          compact    runs -> partial rows
    layout     partial rows, each family together and in order
    parts      ordered rows -> Parquet objects of runs
    merge      small segments -> one that holds the same records
    verify     runs read back and compared with their segments
    extract    what a segment's records say, without Spark

One job makes many runs, of many logs. Segments and parts are fetched and put by the Python workers, so that the same
code runs on EMR Serverless and on a laptop without any connector of Hadoop. A run exists once its descriptor does, which
the driver creates last: killed at any moment, a job leaves objects that no reader meets, and repeated it finishes.
"""
