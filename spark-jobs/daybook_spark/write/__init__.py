"""Writers: rows become entries of new ledgers, or messages of a topic.

In reading order:

    writers  which writer the options ask for
    task     which task runs
    entries  the payloads of rows, in chunks
    job      what a job's ledgers are called, how its commit names them, and how they are deleted
    ledgers  the writer of ledgers, for batches and for streams
    sweep    deletes what killed tasks and jobs left behind
    topic    the writer of a topic, through brokers
"""
