"""How fast Spark reads what Daybook stores, and what it costs whom.

`make bench-spark` writes ledgers of entries of 1 KiB and a topic of messages of 100 B in batches. Spark reads them with one, two and four
tasks at a time, and reads the same rows in two other ways: from Parquet, and from a *null source*, which hands over the very batches
of Daybook's source from memory. What the null source reaches is what Spark can take from any source in Python. A plain reader
in Python, without Spark, reads the same ledgers. Then topics of messages with keys are compacted by the shipped job, and a retention runs.

In reading order:

    workloads      what is read, and what of it is the aim
    data           writes it, and records the batches of rows
    null_source    the data source that does nothing
    tables         a session of Spark, and one query over each source
    plain          the reader without Spark
    costs          CPU and memory of Java, of the workers in Python and of the bookies
    job_rows       what the jobs are measured by
    job_data       topics with keys, and idle ones
    jobs           compaction beside the data source, and retention
    report         tables and a JSON file
"""
