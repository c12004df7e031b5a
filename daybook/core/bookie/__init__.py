"""One ledger on one bookie.

In reading order:

    ledger            what the bookie takes, what it refuses, and what it may say to a recovery
    over_replicated   when it may remove replicas that metadata no longer places on it
    exits             the exit codes by which its process says why it ended
"""
