"""What is written here and synced survives; what is answered was synced here first.

In reading order:

    records     what it carries: frames, and the decisions about a ledger that must survive a crash
    format      its bytes
    journal     the passive piece: write, sync, roll, trim
    thread      the one thread that writes it: a group, a sync, all answers
    spare       the next file, made ahead of time
    replay      what a start reads back
"""
