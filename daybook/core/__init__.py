"""The protocol as pure state machines.

A machine takes an event and returns effects; it never performs them. Nothing here knows sockets, disks, clocks,
threads or randomness: time arrives as an event, a random source as an argument. The same code therefore runs under the
client, under a bookie, under the deterministic simulator and under the exhaustive explorer.

# The loop of a driver

Every machine keeps one contract (`machine.Machine`): `start()`, `step(event)` and `is_done`. A driver carries out
effects and feeds the answers back; it decides nothing. This recovers a ledger:

    machine = LedgerRecovery(ledger_id, placement=placement, rng=rng, bookies=registered, now_ms=clock_ms())
    effects = machine.start()
    while not machine.is_done:
        for effect in effects:
            match effect:
                case SendFence(bookie, request_id):
                    ask(bookie).fence(request_id)        # later: FenceAnswered(bookie, request_id, code, …)
                case SendRead(bookie, request_id, first, last, bytes_max, fence):
                    ask(bookie).read(request_id, …)      # later: ReadAnswered(bookie, request_id, code, …)
                case SendFrame(bookie, send_id, frame):
                    stream(bookie).send(send_id, frame)  # later: FrameAcked or FrameFailed(bookie, send_id, …)
                case CasMetadata(request_id, metadata, expected_version):
                    zookeeper.cas(request_id, …)         # later: CasAnswered(request_id, outcome, version)
                case ReadMetadata(request_id):
                    zookeeper.sync_and_read(request_id)  # later: MetadataRead or MetadataUnreadable(request_id, …)
        effects = machine.step(wait_for_the_next_event())
    (result,) = effects                                  # Recovered(metadata) or RecoveryFailed(error)

What a driver owes a machine:

- *Order.* It carries out effects in their order. Frames to one bookie arrive in the order in which they were sent.
- *What is published has no answer* (`PublishLac`). Where it may have vanished, the driver feeds `LacLost`, once there is a stream again.
- *One answer for each other request,* with the request's id. An answer that does not come in time becomes a failure
  (`Code.TIMEOUT`, `Code.CONNECTION_LOST`, `CasOutcome.UNKNOWN`), never a guess. If it comes later all the same, the driver
  may feed it: a machine drops what it no longer waits for (rule 18).
- *News, unasked:* `Tick` every few dozen milliseconds, with a monotonic clock; `BookieFailed` when the connection to a bookie
  is lost; `BookiesChanged` when bookies registered or left. A machine with `pass_time` gets the time with each event, and may have
  its `Tick` later: a writer when it wants one, a reader when nothing else comes.
- *No re-entrance.* An answer that is known at once is fed from the next turn of the loop, never from inside `step`.
- *The end.* Once `is_done`, whatever is still under way may be given up. A machine that is done asks for nothing more,
  but an owner of a topic for the deletions that it has begun.

What a machine owes a driver:

- *Typed effects.* Each machine has a union of the effects that it gives (`WriterEffect`, `RecoveryEffect`, … in effects.py), so
  that mypy proves that a driver of this machine alone knows them all.
- *An event that is not its own is an error of the driver.* Each machine has a union of the events that it takes (`WriterEvent`,
  `RecoveryEvent`, … in events.py). Its `step` is one `match` over that union, and `case _: assert_never(event)` ends it: mypy
  proves that the `match` is complete, and a foreign event raises AssertionError. A machine does not ignore it, because the machine
  that the event was meant for would wait for ever. News goes to every machine; one that has no use for a kind of news ignores it.
- *An answer that nobody waits for is no error.* It came late, or twice. It is dropped without an effect (rule 18).
- *An exception is the end.* Assertions state what must hold and stay on in production. After one, nothing that the machine says
  counts; the driver drops it, and what it was at is recovered like the work of a process that died.

# The files, in reading order

    ids, errors, quorum     identifiers and limits, what can go wrong, the arithmetic of who holds what
    machine                 the contract of all machines, the source of their request ids, their retry timer
    format/                 frames on the wire and in the journal, blocks in the store, the intervals that say what exists
    ledger/                 a ledger's metadata and the only ways in which it may change
    placement/              which bookies an ensemble consists of
    events, effects         what goes into the machines of a client and what comes out of them
    stream                  what an append stream owes, on both of its ends
    lac_rows                the LACs that a client publishes to a bookie on such a stream, and which of them are lost
    writer/                 a ledger open for writing
    recovery/               a ledger whose writer is gone
    reader/                 a ledger open for reading
    repair/                 one ledger's replicas brought back
    audit/                  what is under-replicated, in which order it is repaired
    bookie/                 a bookie: what it accepts, refuses, journals and answers
    topics/                 a topic: its name, its list of ledgers, its cursors
"""
