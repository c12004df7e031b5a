"""The writer of an open ledger: what may be acknowledged, in which order, and through which bookies.

# How an append leaves

1. *Queue.* `AppendRequested` checks the payloads and gives them entry ids. They gather in the queue, and the append waits in a heap
   by its last entry.
2. *Flush.* The driver sends `FlushRequested` when a bookie of the ensemble has nothing under way. A queue that holds a whole
   frame does not wait for it.
3. *Seal.* What gathered becomes batches: contiguous entries, encoded once, with their checksums and the LAC of this moment
   (rule 44). With striping each position of the ensemble gets a frame of its own.
4. *Send.* The window owes a frame to every live member of the ensemble: one `SendFrames` for all of them.
5. *Answer.* `FrameAcked` sets the bit of the member's position in the batch. `FrameFailed` is an error of the table of rule 21: the
   handle ends, the append fails, or the bookie failed and the ensemble changes.
6. *Acknowledge.* When the oldest batch has its ack quorum, and no metadata change is undecided, it completes (rule 14, rule 15):
   the LAC moves, and each append whose last entry is complete is answered with `Complete`. With deferred sync the LAC
   waits for a force (rule 22).
7. *Release.* A batch stays in the window until every bookie that got it has answered or failed. Then its bytes count no more.

What every entry causes (`AppendRequested`, `FlushRequested`, `FrameAcked`) has a method of its own beside `step`, without an event:
`append`, `flush`, `acked`. A `Tick` is wanted only at `next_tick_ms`, and `tick` takes it where it has anything to do.

The LAC travels with the next frame; without one, it gets a frame of its own (rule 48).

# The files, in reading order

    writer       the machine: one `match` over its events, and what each outcome allows next
    view         what a driver may ask of it
    policy       its limits and delays, each with a bound
    state        what it knows of its ledger: one record, shared by all parts
    queue        what was appended and not yet sealed, and where it is cut into frames
    member       the states of a member of the ensemble, and their transitions
    window       batches: encoded, sent, and who still owes an answer for them
    ensemble     how it continues when bookies fail, and how missing ones come back
    replacement  who takes a failed bookie's place, and which metadata is still the writer's own
    forcing      deferred sync: what only a force acknowledges
    handle       the states of the handle, and their transitions
    timing       when it wants a Tick
    closing      how the handle ends, and when and where the ledger is closed
    reactions    what a bookie's error leads to: the handle ends, an append fails, or the ensemble changes
    errors       what it reports when it fails
"""
