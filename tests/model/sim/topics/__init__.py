"""Topics: brokers that own one, or believe so, each with the drivers of ledgers and cursors that ship, over the client that ships.

    swarm.py         which seeds have topics, and what happens to them
    nodes.py         lists and cursors in the tree of ZooKeeper, and who changes them
    watched.py       the ledger client, with the checks of ledgers beside it
    drivers.py       the shipped drivers, watched; their owner may die between two effects
    consumers.py     what consumers of a subscription do
    owner.py         a broker that owns a topic, with those who publish and consume
    life.py          who owns a topic when, from its first owner to its last
    checks.py        what was acknowledged to a publisher is in the topic once, in order, and for good; each subscription gets it
    cursor_oracle.py what was acknowledged by consumers and persisted is what the next owner finds (rule 40)

Brokers hold no lease here: at any time any number of them believe that they own the topic, which is the worst that a lease
that expired unnoticed can lead to.
"""
