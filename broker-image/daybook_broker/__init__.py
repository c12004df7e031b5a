"""A broker: the process that owns topics and serves them to Pulsar clients.

In reading order:

    settings     what a broker is configured with
    totals       what it counts for each entry
    metrics      what it counts, as a scrape gets it
    errors       what it refuses, and how the protocol calls that
    topics/      topics on their owner
    ownership/   which topics this broker owns, and who owns the others
    connection/  Pulsar's binary protocol
    collecting   deletes ledgers of topics that a crash left behind
    broker       puts these together
"""
