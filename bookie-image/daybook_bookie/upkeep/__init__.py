"""What a bookie does when nobody asks.

In reading order:

    gc               deletes ledgers that are no longer in the metadata
    over_replicated  removes replicas that metadata no longer places here
    scrubber         reads everything that is stored, slowly, and checks every entry
"""
