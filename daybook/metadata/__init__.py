"""What Daybook keeps in ZooKeeper, over one store interface that ZooKeeper and a simulated server both fulfil.

Coordination alone lives there: who is alive, which bookies hold a fragment, who repairs what. Entries never do.
"""
