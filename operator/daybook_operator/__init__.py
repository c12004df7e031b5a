"""The Kubernetes operator: watches, plans, performs.

Every decision is made by a pure function of what was observed (`plan`). Everything that touches the world outside is an
effect from a fixed list, carried out in one place (`reconcile.performer`), so that a crash between any two effects can be
tested, and the next reconcile starts from what is true then.

In reading order:

    plan       pure: what to do about a pool, a ledger, the repair of a cluster
    kube       the API server: requests, watches, the queue of keys, the Lease
    clusters   links to Daybook clusters
    reconcile  observe, plan, perform
    kinds      the registry of what is reconciled
    leading    what the leader runs; main, settings, metrics, health are the process around it
"""
