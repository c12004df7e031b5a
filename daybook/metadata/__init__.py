"""What Daybook stores in ZooKeeper, over one store interface that ZooKeeper and a simulated server both implement.

ZooKeeper holds coordination data only: the registered bookies, the bookies of each fragment, the repair tasks. It never
holds entries.

In reading order:

    layout        the paths of all nodes
    store/        the interface of the tree store, and its implementations
    instance      the identity of a cluster
    ledgers, tree       ledger metadata: changed by compare-and-set, listed whole
    creation      creates ledgers, many in one transaction
    bookies       presence, cookies, authorised replacements, topology
    topics        the ledgers, cursors and policies of topics
    partitions, policies  partitioned topics; tenants, namespaces and what is set for them
    job_results   what jobs did for topics
    brokers, bundles  the registered brokers; the leases of bundles of topics
    claim         one process at a time is a bookie
    registration  keeps a bookie registered
    epoch_node    the epoch that a bookie's disks had reached
    tasks         the ledgers that need repair
    hold          nothing is collected after a restore, until a person confirms
    backup/       all that persists, in a file
    lease, election     ephemeral nodes with an owner; the election of a leader
"""
