"""Auto-recovery as processes: the elected auditor finds what is under-replicated, the workers repair it.

In reading order:

    cluster      what auto-recovery needs of a client, as a protocol
    auditor      one audit of all ledgers: tasks marked and removed
    listing      what bookies say they hold
    report       what an audit found, for people, JSON and metrics
    elected      the auditor as a process, one of several candidates
    worker       finds ledgers to repair, by name or from the stored tasks
    pool         several ledgers at a time
    orders       what a worker is asked to repair, and whose word it takes
    locked       one ledger under its lock
    guard        keeps a worker that may have lost its lock from changing anything
    mend         one ledger: plan, carry out, look again
    words        why a ledger has a task, in the words that are stored
    decommission  takes a bookie out of the cluster without losing a replica
    serving, metrics, settings  what the long-running processes serve and are told
"""
