"""Auto-recovery as processes: the elected auditor finds what is under-replicated, the workers repair it.

What is repaired, in which order and when, is decided by machines of the core (`daybook.core.audit`,
`daybook.core.repair`); here they are driven. In reading order:

    cluster      what auto-recovery needs of a client, as a protocol
    cycles       the auditor's cycles over all ledgers of a cluster
    listing      what bookies report to hold
    report       what a cycle found, for people, JSON and metrics
    elected      the auditor as a process, one of several candidates
    worker       finds ledgers to repair, by id or from the stored tasks
    pool         several ledgers at a time
    asked        a ledger or a bookie that is asked for by id: nobody has observed it so far
    locked       one ledger's turn under its lock
    steps        the steps of the turn, carried out
    guard        keeps a worker that may have lost its lock from changing anything
    decommission  takes a bookie out of the cluster without losing a replica
    serving, metrics, settings  what the long-running processes serve, and their configuration
"""
