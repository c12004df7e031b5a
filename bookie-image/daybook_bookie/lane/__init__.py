"""The lane: append streams without gRPC (daybook/wire/lane.py).

In reading order:

    listener    takes connections, and greets who comes
    connection  one client's connection: its messages, in and out
    tls         TLS over bytes that somebody else moves, since two threads use one connection
"""
