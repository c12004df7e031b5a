"""What all clients of a ledger agree on.

In reading order:

    metadata    the record in ZooKeeper, and the one function that judges every change of it
    update      one change, carried through until its outcome is known
"""
