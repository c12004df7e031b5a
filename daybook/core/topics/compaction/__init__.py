"""The compaction of a topic: of each key the last message stays, and an empty value deletes its key.

The position of a message never changes, so a consumer may begin in the compacted ledgers and continue in the topic's own behind them.

In reading order:

    keys     which messages stay
    record   an entry of a compacted ledger
    plan     what is read, and up to where
    commit   whether an owner names what a job planned and wrote
"""
