"""In the driver: what exists, cut into ranges, one for each task.

In reading order:

    bounds       what a query wants, from its options and Spark's filters
    existing     what exists now, and how far it may be read
    times        where in a topic a time is
    ranges       cuts of a ledger
    entry_range  what a task is given
    batch        the plan of a query
    moved        where the entries of a range are once they have moved; for tasks
"""
