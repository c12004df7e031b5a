"""The plan for a Ledger resource.

In reading order:

    spec          the spec as values
    observed      what is true of it now
    plan          create its ledger once, mirror it, seal it, delete or release it
    status        what people see
"""
