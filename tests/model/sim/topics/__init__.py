"""Topics: brokers that own one, or believe so, each the machine of its ledgers over the machines of the ledgers themselves.

    swarm.py      which seeds have topics, and what happens to them
    lists.py      the lists of ledgers, as ZooKeeper has them
    parts.py      what an owner runs for one ledger: its writer, a recovery, a deletion
    owner.py      a broker that owns a topic, with those who publish to it
    life.py       who owns a topic when, from its first owner to its last
    checks.py     what was acknowledged to a publisher is in the topic once, in order, and for good

Brokers hold no lease here: at any time any number of them believe that they own the topic, which is the worst that a lease
that expired unnoticed can lead to.
"""
