"""Observe, plan, perform: what a key of the queue leads to.

In reading order:

    services       what every reconcile works with
    inventory      which object belongs to which cluster and ledger; turns changes into keys
    listing        what there is in the namespaces, each asked for itself
    performer      carries out effects: the one place that writes
    pool           a BookiePool: pool_observer with pool_objects, cluster_pods, pool_survey
    ledger         a Ledger; lost_ledgers asks about entries that no repair found
    topic          a Topic; topic_changes carries out what its plan asks for
    stored         what Ledgers and Topics share
    recovery       the repair of a cluster; job_problems says why Jobs do not start
    jobs           the CronJobs of a pool, and how their last runs ended
"""
