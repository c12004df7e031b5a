"""The plan for a BookiePool.

In reading order:

    spec, cluster_settings     the spec as values; settings of a whole cluster that several pools name
    pool, state, others       what is true now, what the status remembers, the cluster's other bookies
    decide                     what is true in, everything that is to be done out
    objects, pod, growth       its objects, the pod of a bookie, volumes that grow
    topology, placement        where bookies stand, and whether replicas lie as the spec asks
    replication, budgets       whether every entry is on all its bookies; disruption budgets
    roll, scale, drain, lost_disk, move, delete  one thing each that may be under way
    status, failures           what people see
"""
