"""A topic on its owner: its ledgers, producers, subscriptions, and what they read.

In reading order:

    services        what all topics share
    peer            what a topic needs of a client's connection
    turn            what all topics do at the end of a turn of the event loop
    tasks           what a part of a topic has under way
    creation        a ledger by the terms of a policy
    appends         entries on their way into one ledger
    managed_ledger  the driver of a topic's ledgers
    tail_cache      what was published a moment ago, in memory
    read_ahead      what was read from bookies and is not dispatched yet
    offloaded_files files of ledgers that bookies do not have any more
    ledger_reads    reads of ledgers, for all topics
    reading         reads of one topic
    compacted_reads reads of what a compaction left
    compaction      the compaction of a topic by its owner
    offloads        the owner's part in the offload of its topic
    producer        a producer: what it sends becomes entries
    publishing      entries on their way to receipts
    access          who may publish at the same time
    cursor_requests what a cursor asks of ZooKeeper and of the ledger client
    cursor          the driver of a subscription's cursor
    reader_cursor   the cursor of a reader, which nothing stores
    by_time         where in a topic a time is
    consumer        a consumer: entries leave as they are stored
    subscription    a cursor, what delivers, and the consumers that receive
    subscriptions   all subscriptions of a topic
    rates           how much a topic takes a second
    topic           a topic: ledgers, producers and subscriptions
    topic_lists     the topics of a namespace, as they come and go
    registry        the topics of a broker: loaded once, held meanwhile, given up
    deletion        a topic's end, with all that it has
    upkeep          trimming, expiry, backlog quotas, topics that nobody uses
"""
