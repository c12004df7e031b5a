"""Spark over Daybook: ledgers and topics as a PySpark data source, read straight from the bookies.

Three kinds of processes take part. The *driver's* planning processes ask ZooKeeper and the bookies what exists, and cut it into ranges.
The *tasks* read one range each, from bookies whose addresses the range carries, so that they open no session in ZooKeeper.
PySpark forks tasks from a process of its own: that process must not import gRPC, which does not survive a fork.

In reading order:

    options      every option of reading and writing, and the secrets that are no options
    source       the data source: what PySpark calls
    access       how drivers and tasks reach a cluster
    brokers      how the owners of topics are reached
    worker       what a worker of PySpark does once
    progress     how far the tasks of a job are
    session      a Spark on this machine, for commands and tests
    java         the Java that Spark runs on where there is no JDK
    entrypoint   what a container of the image `spark` runs
    driver       makes a process of a Kubernetes Job Spark's driver
    plan/        in the driver: what exists, as ranges
    read/        in a task: the entries of a range
    rows/        entries as Arrow batches
    stream/      a query that follows topics
    compact/     the two passes of a compaction
    jobs/        what is done to topics: which ones, by whom, and what became of each
"""
