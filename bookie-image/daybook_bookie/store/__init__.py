"""The store: entries at rest, and what decides which of them exist.

In reading order:

    storage        journal, write cache and store together: the order in which things must happen
    machine_storage  write cache and store as the core's machine sees them; its decisions as records of the journal
    write_cache    where an accepted frame is found until the store has it
    generation     what the cache took for each ledger since the previous swap
    entry_store    what a bookie asks of its entry store
    store          that store: blocks in LMDB, an index in memory
    stored_ledger, index  what the store knows of a ledger; which ledgers exist, and the root that proves it
    environment, checkpoint  the LMDB environment; the copy of the root outside of it
    flushing, removing  a generation into the store; ledgers and replicas out of it
    reading        the blocks of one ledger within a snapshot
    thread         the one thread that writes the store
"""
