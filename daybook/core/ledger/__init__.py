"""What all clients of a ledger agree on.

In reading order:

    metadata     the record in ZooKeeper
    transitions  the life of a ledger, and the one function that judges every change of its metadata
    update       one client's reads and changes of the metadata, each carried through until its outcome is known
"""
