"""The plan for a cluster's repair.

In reading order:

    audit_debt    when a full audit is owed
    jobs          which recovery Jobs there should be
    manifests     the manifest of such a Job
    plan          what the pool that carries the repair does, and what the status of each pool says of it
"""
