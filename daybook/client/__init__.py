"""The client: carries out what the machines of the core ask for, over gRPC streams and the metadata store.

In reading order:

    connecting   how a process becomes a client
    client       a process's connection to a cluster, and everything that it can do to ledgers
    ledger       a ledger open for writing
    ends         the end of a ledger that another client closes
    events       what a ledger that is open for writing reports to its user
    reader       a ledger open for reading
    recovery     closes a ledger whose writer is gone
    deletion     deletes a ledger, after a recovery or on purpose without one
    left_behind  what a topic names, and the deletion of ledgers that nothing names
    preconditions  what has to hold before a call does anything, and how long it may take
    counts, metrics  what a client counts; the same for Prometheus, without a label for a ledger
    verify       reads every copy of a ledger and compares them
    broker_admin asks the owner of a topic over the brokers' admin HTTP
    topic_reports, broker_topics  what brokers know of all their topics: the records, and how to ask for them
    by_time      where in a topic a time is, found by a few reads of entries
    detached     reads ledgers without the metadata store, by what somebody else found there
    blocking     the same for code without an event loop, over
    loop_thread  an event loop on a thread of its own
    placement_settings  where copies go, as environment variables
    driver/      runs a machine: carries out its effects, feeds the answers back
    transport/   append streams and calls to each bookie
"""
