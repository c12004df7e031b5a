"""A bookie: the process that keeps the entries of ledgers.

From the sockets inwards: process and server; append, reads and control; attach, fencing and passwords; the ledgers under
their one lock; journal thread and store thread; storage. Beside them what runs by itself: gc, surplus, scrubber,
disk_watch, long_poll. Boot decides whether any of it may start.
"""
