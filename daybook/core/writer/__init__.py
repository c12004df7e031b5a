"""The writer of an open ledger: what may be acknowledged, in which order, and through which bookies.

In reading order:

    writer       the machine: events in, effects out
    policy       its limits and delays, each with a bound
    state        what it knows, and what every part of it rests on: seal, complete in order, end
    queue        what was appended and not yet sealed, and where it is cut into frames
    batch        the unit in which it sends, counts answers and completes
    window       what is under way, and which bookie still owes which answer
    force        deferred sync: what only a force acknowledges
    forcing      the machine's part for it
    ensemble     how it goes on when bookies fail
    replacement  who takes a failed bookie's place, and which metadata is still its own
    upkeep       what it does as time passes: publish the LAC, watch the slow and the missing
    closing      how its metadata changes end, and how its ledger does
    errors       what it says when it fails
"""
