"""The protocol as pure state machines.

A machine takes an event and returns effects; it never performs them. Nothing here knows sockets, disks, clocks,
threads or randomness: time arrives as an event, a random source as an argument. So the same code runs under the
client, under a bookie, under the deterministic simulator and under the exhaustive explorer.
"""
