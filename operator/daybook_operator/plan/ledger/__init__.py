"""The plan for a Ledger resource.

In reading order:

    world         what is true of it now
    plan          create its ledger once, mirror it, seal it, give it up
    status        what people see
"""
