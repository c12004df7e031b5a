"""A ledger open for reading: each entry once, in order, and none that may still be lost.

In reading order:

    view        what one reader knows of its ledger, and the machines that it makes
    lac         how far it may read a ledger that somebody else writes, asked once
    tail        the same, followed to the close
    reader      the machine that reads a range
    piece       a run of entries of one fragment, being fetched
    batch       a few entries from one bookie at once, without a machine
    suspects    the bookies that failed lately, which are asked last for a while
"""
