"""The protocol as pure state machines.

A machine takes an event and returns effects; it never performs them. Nothing here knows sockets, disks, clocks,
threads or randomness: time arrives as an event, a random source as an argument. So the same code runs under the
client, under a bookie, under the deterministic simulator and under the exhaustive explorer.

In reading order:

    ids, errors, quorum     identifiers and limits, what can go wrong, the arithmetic of who holds what
    format/                 frames on the wire and in the journal, blocks in the store, the intervals that say what exists
    ledger/                 a ledger's metadata and the only ways in which it may change
    placement/              which bookies an ensemble consists of
    events, effects         what goes into the machines of a client and what comes out of them
    stream                  what an append stream owes, on both of its ends
    writer/                 a ledger open for writing
    recovery/               a ledger whose writer is gone
    reader/                 a ledger open for reading
    repair/                 one ledger's replicas brought back
    audit/                  what is under-replicated, in which order it is repaired
    bookie/                 one ledger on one bookie
"""
