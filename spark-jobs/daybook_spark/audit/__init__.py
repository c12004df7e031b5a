"""The audit job: every copy of every confirmed entry is read and checked, by as many tasks as Spark has.

The auditor compares what bookies list; this job has them show it. In reading order:

    plan    what each task reads, with all that it needs to know
    pace    how fast one bookie is read
    check   what a task does, and its rows
    source  the plan and the tasks as a data source of PySpark
    owed    what nobody owes any more after the last read
    job     the whole job: table, Parquet, summary, repair tasks

What a bookie cannot read it remembers as damaged from then on, so the tasks of a repair are the auditor's own: one cycle of
`daybook.autorecovery.cycles` after the last read.
"""
