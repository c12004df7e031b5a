"""The delivery of a subscription: which consumer receives which entry, when, and when again.

One machine for each subscription that has consumers. It knows what is acknowledged (acks.py) and what exists (extent.py); entries are
read for it, and what it delivers is sent for it.

In reading order:

    entries     an entry as it is delivered
    policy      how much is read, delivered and kept unacknowledged at once
    events      what goes into the machines, and what comes out
    consumers   what a machine knows of one consumer
    new_entries entries that nobody has received yet, in order: what is asked for, and what waits for permits
    active      which of several consumers is the active one
    single      the machine of exclusive and failover subscriptions, and of readers
    rotation    whose turn it is on a shared subscription
    redelivery  what is to be delivered again, and how often it was
    chunks      which consumer has the beginning of a message that comes in chunks
    unacked     what the consumers of a shared subscription have and have not acknowledged
    shared      the machine of shared subscriptions
"""
