"""Daybook clusters, as the operator reaches them.

In reading order:

    links         one for each (ZooKeeper, cluster): a client, its repair tasks, its auditor
    ledger_index  what all ledgers say of the cluster's bookies, kept up to date by what changes
"""
