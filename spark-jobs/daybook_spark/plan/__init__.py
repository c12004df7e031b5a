"""In the driver: what exists, cut into ranges, one for each task.

In reading order:

    entry_range  what a task is given
    ranges       cuts of a ledger
    batch        the plan of a query
"""
