"""The journal: what is appended here and synced survives a crash; the bookie answers only for what was synced.

In reading order:

    format      its bytes: records (frames, and decisions that must survive a crash), groups, files
    journal     the passive piece: append, sync, roll, trim
    thread      the one thread that writes it: a group, a sync, all answers
    spare       the next file, created ahead of time
    replay      what a start reads back
"""
