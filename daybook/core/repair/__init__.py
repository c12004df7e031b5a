"""One ledger's replicas brought back: copies first, then metadata names the new bookie.

In reading order:

    plan        what a repair does, as values
    repair      the machine that carries a plan out
    copy        the part of it that copies what one position owes to one bookie
"""
