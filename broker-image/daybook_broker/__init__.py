"""A broker: the process that owns topics and serves them to Pulsar clients. So far it is a package of parts, not a process.

In reading order:

    managed_ledger   a topic's ledgers, driven over the ledger client
"""
