"""What to do, as pure functions of what was observed: no I/O, no clock, no Kubernetes client.

In reading order:

    names         labels, annotations and other names that stay on objects
    effects       everything that the operator may do to the world outside
    conditions    conditions of a status, and the events that report their changes
    decision      what a plan returns: effects in order, and when to reconcile again
    finalizers    when a finalizer must let go
    spec_part, quantities, zookeeper_access   parts of specs
    spark_jobs    what pools and Topics know of jobs on Spark
    pods, drift   what pods of bookies and of Jobs share; whether an object is as it should be
    draws         random numbers that are a function of a text
    lost_ledgers  whether an entry that no repair found is lost
    stored        what Ledgers and Topics share
    pool          the plan for a BookiePool
    ledger        the plan for a Ledger
    topic         the plan for a Topic
    recovery      the plan for the repair of a cluster
    jobs          the plan for the jobs of a pool on Spark
"""
