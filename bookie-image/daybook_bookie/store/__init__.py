"""Entries at rest, and what decides which of them exist.

In reading order:

    storage        journal, write cache and store together: the order in which things must happen
    write_cache    where an accepted frame is found until the store has it
    entry_store    what a bookie asks of its entry store
    store          that store: blocks in LMDB, an index in memory
    opening, index, ledger_record, checkpoint  its environment, what exists, what is known of a ledger, how far it had come
    writing, reading  flushes and removals; blocks of one ledger within a snapshot
    thread         the one thread that writes it
"""
