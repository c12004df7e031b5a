"""A ledger whose writer is gone: closed at an end that holds everything that was ever acknowledged.

In reading order:

    recovery    the machine: mark, fence, replay, close
    policy      how patiently it works
    fencing     who has fenced, and whether that is enough
    replay      reads on until an entry is proved absent, and writes back what it finds
    evidence    what the answers of bookies prove about entries that may or may not have been written
    elsewhere   whether the entry after the end lies where restored metadata does not say
    write_back  what was found goes back to all of its write set
    deletion    the machine that comes before a deletion without recovery
"""
