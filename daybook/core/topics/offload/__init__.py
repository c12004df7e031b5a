"""Offload: closed ledgers of a topic are copied into files of an object store, and leave the bookies after a lag (rule 70).

Jobs write the files, and the topic's owner names them: it alone changes the list (rule 38).

In reading order:

    record   what the list says of a ledger's file, and how that may change
    plan     which ledgers a job copies, and which files nobody names
    changes  what an owner changes in the list, and what it refuses
    restore  how a ledger comes back to bookies (rule 72)
    gone     the files of topics that were deleted (rule 73)
"""
