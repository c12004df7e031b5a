"""What clients ask of a bookie.

In reading order:

    server      the sockets, with a pool of threads for each kind of call
    roles       who may ask what
    admission, deadlines, budget  who gets a worker, what ends a call, how many bytes may be held
    ledgers     the ledgers, under the one lock that every decision about them holds
    attach, passwords  a stream and a ledger: the password, and the proof that the ledger may be written to
    append      one client's append stream
    fencing     refused from now on, answered once it is durable
    reads       a range, from the cache and the store
    long_poll   questions for a LAC that wait without a thread each
    control     the control calls
"""
