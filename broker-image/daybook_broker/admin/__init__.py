"""The admin API: HTTP at Pulsar's paths, over the objects of the broker.

In reading order:

    server         the port, errors as answers, limits
    api            what handlers share: names, bodies, and the owner that a request is sent on to
    lookup         who owns a topic
    brokers        brokers, the leader, health, metrics
    namespaces     tenants, namespaces and their bundles
    permissions    what roles may do in a namespace
    settings       retention, TTL, quotas and durability of namespaces and topics
    topics         topics and their partitions
    owned          what only a topic's owner can do
    stats          what it knows about a topic, for Pulsar's tools
    known          Daybook's own paths: what this broker knows of all its topics, from memory alone
    reports        the same as records
    jobs           what jobs ask a topic's owner for
    offloads       the same about files of ledgers
"""
