"""`daybook topic …`: topics, their policies, their subscriptions and their messages.

Who is asked follows from who may write what (rule 38). Names and policies are read and set in ZooKeeper. What only the owner of a topic knows or
may change goes to it over the brokers' admin HTTP. Messages go over Pulsar's binary protocol, with a small client of our own, so that no other
client has to be installed.

In reading order:

    commands             create, list, stats, explain, skip, seek, policy
    listing              what ZooKeeper has about all topics
    explain              why a topic is not as it should be, for kubectl as well
    messages             produce, consume, peek
    brokers              the registered brokers, whose admin HTTP daybook/client/broker_admin.py asks
    client, connection   the owner of a topic; a connection to a broker
    producer, consumer   what is attached to an owner, and again to the next one
    partitions           which partition a message belongs to
"""
