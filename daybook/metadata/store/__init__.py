"""A thin tree store with one contract: versions, ephemeral nodes, watches, transactions.

In reading order:

    store          the interface
    transport      one attempt at a time: what a server must offer
    resolving      a dependable store over such attempts: retries, time-outs, unknown outcomes resolved
    zookeeper      the attempts over kazoo
    kazoo_session  kazoo's client with a session whose certain life is known
    acl, settings  who may change nodes; TLS and authentication
    memory_tree, memory  a server in memory, with the faults of a network on demand
    read_ahead     many reads without waiting for each
"""
