"""What ships, on simulated time and a simulated network: the real client, its metadata store and auto-recovery.

    loop.py, pretence.py                an event loop whose selector is the world; the clock and the chance of its process
    zookeeper.py, connection.py         servers with a tree of nodes each, and the transport beneath `ResolvingStore`
    channel.py, append_call.py, servant.py   what stands in for gRPC: a channel of calls, and what a simulated bookie answers
    process.py                          a process that runs all that, and what its neighbours in the simulator ask of it
    users.py, writing.py, reading.py    its users: they write, read, recover and delete, and remember what they learned
    caretaking.py                       the auditor, the worker and a decommissioning
    swarm.py                            which seeds run all this, and how much of it

Nothing here decides anything for the client: every byte that it sends and every answer that it gets has the form of the
wire, and everything that it does is judged by the checks that judge the machines.
"""
