"""What Daybook does in a second, beside Apache BookKeeper and beside what the machine itself can do.

`make bench` measures Daybook, `make bench-peer` both in one run. Every workload runs in a client process of its own
against real bookie processes with fsync on; a write is timed until its bookies have stopped, so that the backlog of
the store is drained inside the timing.

`broker/` has the bench of brokers (`make bench-broker`), and `spark/` that of Spark (`make bench-spark`), which are programs of their own.
"""
