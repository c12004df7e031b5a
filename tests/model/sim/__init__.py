"""A deterministic simulator of the core: the same machines that run in production, under every fault that we know.

    world.py, network.py, metadata_model.py, disk.py     time, messages, ZooKeeper, what a crash keeps
    journalled.py, failing_disk.py, replay_checks.py  the real journal and flush on a disk with bytes, and what comes back
    disk_swarm.py, disk_errors.py, disk_damage.py, disk_faults.py   what such a disk is made of, and what goes wrong with it
    bookie_*.py                                          a bookie around the real `BookieLife` and `BookieMachine`
    streams.py, clients.py                               a client process that drives one machine
    writers.py, readers.py, actors.py, auditing.py       what clients do: write, read, recover, delete, audit, repair
    swarm.py, faults.py, twins.py, atlas.py              what a seed consists of, what goes wrong in it, and which disk may be lost
    checkers.py, oracle.py, *_checks.py, transitions.py, queues.py   the promise, checked during a run
    topics/                                              topics as brokers drive them, and who owns them or believes so
    drills.py                                            what must not wait for what never comes
    shipped/                                             the client that ships, on simulated time and a simulated network
    cluster.py, scenario.py, run.py, campaign.py, __main__.py, trace.py   one run, many runs, `make sim`, what happened
    regressions.py                                       seeds that once raised an alarm

ZooKeeper and a disk have two models each, a class and its extension. `MetadataStore` and `Disk` state what is stored; `TreeStore`
puts the tree of nodes beneath the same calls, for the processes that ship, and `JournalledDisk` the bytes of journal and store,
whose replay it compares with what `Disk` says. Most seeds need neither extension, and run a third faster without bytes.

A seed decides everything; `make sim SEED=n TRACE=1` shows what it decided.
"""
