"""The lane: append streams and reads without gRPC (daybook/wire/lane.py).

In reading order:

    listener    takes connections, and greets who comes
    reading     answers reads, on connections of their own
    connection  one client's connection: its messages, in and out
    tls         TLS over bytes that somebody else moves, since two threads use one connection
"""
