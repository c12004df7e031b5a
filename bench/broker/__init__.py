"""What brokers do in a second for an unmodified Pulsar client: Daybook's, Apache Pulsar's, and one that does nothing.

`make bench-broker` starts all three and loads them in turn, round by round, so that a busy moment of the machine meets each of them.
The null broker answers at once and stores nothing: what it reaches is what the client and the machine can do at most.

In reading order:

    workloads      what is measured, and what of it is the aim
    load           the client process of one workload
    go_perf        the same for Go's client, which brings its own
    null_broker    the broker that does nothing
    sides          starts and stops the three
    report         tables, a JSON file and a plot
"""
