"""A bookie: what it accepts, refuses, journals and answers. The server and the simulator drive the same code.

In reading order:

    ledger           one ledger: password, attachments, fence, limbo, LAC
    machine          all ledgers: messages, fences, forces, limbo, deletions; what to journal, what to answer
    decisions        what must survive a crash, beside the frames
    open_ledgers     which ledgers are in memory, and why
    questions        attachments, keys and fences, with the metadata that they may need
    refusals         what the journal refused, and what the bookie may not vouch for meanwhile
    polls            long polls for the LAC
    range_scan       reading a range from cache and store
    listing          which ledgers it knows, and what proves that they existed
    deletion         which ledgers it may delete
    watch            noticing what happens to a ledger while its metadata is read
    over_replicated  when it may remove replicas that metadata no longer places on it
    life             how it starts, when it serves, how it ends
    exits            the exit codes by which its process says why it ended
"""
