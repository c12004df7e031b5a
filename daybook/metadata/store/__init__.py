"""A thin tree store with one contract: versions, ephemeral nodes, watches, transactions.

In reading order:

    store          the interface
    transport      one attempt at a time: what a server must offer
    resolving      a dependable store over such attempts: retries, time-outs, and the resolution of unknown outcomes
    own_changes    which changes an attempt whose answer was lost has made
    shared         one request for all who want the same
    gathered       one request for all who ask at one time
    zookeeper      the attempts over kazoo
    kazoo_session  kazoo's client, which also knows until when its session certainly lives
    multi_read     ZooKeeper's request for many nodes, which kazoo lacks
    tree_watch, add_watch  which nodes below a path changed; ZooKeeper's request for that, which kazoo lacks
    acl            who may change nodes
    environment, settings  TLS and authentication: whether variables set any, and which
    memory_tree, memory  a server in memory, with injected network faults
    read_ahead     several reads in flight
"""
