"""A bookie: the process that keeps the entries of ledgers.

In reading order:

    settings, main, process  its settings, the command, the life of the process
    server                   its sockets, with a pool of threads for each kind of call
    lane/                    append streams over a connection of their own, without gRPC
    bookie                   its parts, put together, started and stopped in the right order
    service/                 what clients ask: append, attach, fence, read, control calls
    upkeep/                  deletion, over-replicated entries, scrubbing
    ledgers                  the core's machine, under the one lock that every decision holds
    identity/                which bookie this is, and whether it may start on what it finds
    store/                   the write cache, LMDB, and the order of things between them and the journal
    journal/                 what is appended there and synced survives a crash; what is answered was synced there first
    disk/                    the disk as all of them use it, and how it can fail
    metrics                  its metrics
    poller                   a thread that does one thing at intervals

Each of them imports only what is listed below it, and settings and metrics.
"""
