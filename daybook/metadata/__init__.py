"""What Daybook keeps in ZooKeeper, over one store interface that ZooKeeper and a simulated server both fulfil.

Coordination alone lives there: who is alive, which bookies hold a fragment, who repairs what. Entries never do.

In reading order:

    layout        where each thing lives in the tree
    store/        the interface, and what stands behind it
    instance      the identity of a cluster
    ledgers, tree       ledger metadata: created once, changed by compare-and-set, listed whole
    bookies       presence, cookies, authorised replacements, topology
    claim         one process at a time is a bookie
    registration  keeps a bookie registered
    epoch_node    how far a bookie's disks had come
    tasks         what is to be repaired
    lease, election     ephemeral nodes with an owner, and who leads
    blocking      the store for threads
"""
