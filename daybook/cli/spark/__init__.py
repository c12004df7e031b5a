"""`daybook spark …`: jobs that run on Spark, here or on a cluster of machines.

In reading order:

    commands    the commands, and those that are about ledgers: audit, sweep
    compaction  of each key of topics the last message stays
    offload     closed ledgers of topics go into files
    restore     and come back to the bookies
    retention   what owners of topics do not see
    session     a Spark for one command
    topic_jobs  what the jobs for topics have in common: which topics, the summary, the last words
"""
