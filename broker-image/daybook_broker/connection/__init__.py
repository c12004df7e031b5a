"""Pulsar's binary protocol: connections of clients, and what each command does.

In reading order:

    host         what connections need of their broker
    requests     requests that take time, a task each
    keep_alive   whether a client is still there
    credentials  for how long its token holds, and how it shows another
    budget       how much all connections have pending together
    connection   bytes in, frames, commands, answers, back-pressure
    session      CONNECT, AUTH_RESPONSE, PING, PONG
    schemas      what passes while the broker keeps no schemas
    producers    PRODUCER, SEND, CLOSE_PRODUCER
    consumers    SUBSCRIBE, FLOW, ACK, SEEK, and whatever else clients say about consumers
    lookups      LOOKUP, and what else clients ask about a topic
    topic_lists  the topics of a namespace, and how they change
    handlers     all commands in one table
    listener     the port, and the open connections
"""
