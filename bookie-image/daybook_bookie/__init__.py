"""A bookie: the process that keeps the entries of ledgers.

In reading order:

    settings, main, process  what it is told, the command, the life of the process
    bookie                   its parts, put together, started and stopped in the right order
    service/                 what clients ask: append, attach, fence, read, control calls
    journal/                 what is written there and synced survives; what is answered was synced there first
    store/                   the write cache, LMDB, and the order of things between them and the journal
    identity/                whose directories these are, how old they are, and whether it may start on them
    upkeep/                  deletion, over-replicated entries, scrubbing
    disk/                    the disk as all of them see it, and how it can fail
    metrics, descriptors     its metrics; how many files it may have open
"""
