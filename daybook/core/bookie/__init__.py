"""A bookie: what it accepts, refuses, journals and answers. The server and the simulator drive the same code.

In reading order:

    ledger           one ledger: password, attachments, fence, limbo, LAC
    machine          all ledgers: messages, fences, forces, limbo, deletions; what to journal, what to answer
    decisions        what must survive a crash, beside the frames
    open_ledgers     which ledgers are in memory, and why
    attachment       one stream that attaches to one ledger, with the metadata that this may need
    polls            long polls for the LAC
    range_scan       reading a range from cache and store
    deletion         which ledgers it may delete
    watch            noticing what happens to a ledger while its metadata is read
    over_replicated  when it may remove replicas that metadata no longer places on it
    exits            the exit codes by which its process says why it ended
"""
