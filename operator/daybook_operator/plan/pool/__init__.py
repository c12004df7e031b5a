"""The plan for a BookiePool.

In reading order:

    spec                the spec as values
    state               what the status remembers between two plans: drain, roll, recovery
    parts               the parts of the plan, each of which may fail alone
    observed            what is true now
    decide              the plan: from what is observed to everything that is to be done
    pod, objects        the pod of a bookie; ServiceAccount, Service, StatefulSet
    topology, placement the locations of bookies; whether replicas lie as the spec asks
    replication         whether every entry is on all its bookies
    other_pools         bookies of other pools, and whether one bookie may be stopped now
    budgets             disruption budgets
    growth              volumes that grow
    roll, scale, drain  pods of an older revision; the number of replicas; scale-down (two tables of stages)
    lost_disk           a bookie that finds its volumes empty
    delete              what the deletion of a pool removes
    cluster_settings    ZooKeeper's address and the delay for lost bookies, which belong to the whole cluster
    bookies, health     each bookie; the conditions that no step makes
    jobs_health         conditions of the jobs of a whole pool
    status              what people see: one word, one sentence, counts
"""
