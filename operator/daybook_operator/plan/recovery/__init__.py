"""The plan for a cluster's repair.

In reading order:

    audit_debt    when a full audit is owed
    jobs          which recovery Jobs there should be
    recovery      their manifests, and what the pool's status says of them
"""
