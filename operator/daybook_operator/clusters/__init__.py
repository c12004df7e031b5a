"""Daybook clusters, as the operator reaches them: one link for each (ZooKeeper, cluster).

In reading order:

    context       what all links share, and how their parts run
    task_list     the repair tasks, as they were read last
    audits        the elected auditor, and full audits that are owed
    ledger_index  what all ledgers say of the cluster's bookies, kept up to date by what changes
    link          one cluster: a client and all of these
    clusters      all links, opened and closed as they are needed
"""
