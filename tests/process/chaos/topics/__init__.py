"""Drawn faults on brokers, bookies and ZooKeeper, under producers and subscriptions of Pulsar's own client.

In reading order:

    judge   what must hold of what was sent, stored and received
    load    producers and consumers that record what they see
    again   what is acknowledged for good is not received again
    storm   a cluster under drawn faults, then the judgement
"""
