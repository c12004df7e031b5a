"""In a task: the entries of a range, from the bookies that it names.

In reading order:

    process     the client that all tasks of a worker process share
    entries     the entries of a range, piece by piece
    rows        its rows
    batch       the reader that Spark calls
"""
