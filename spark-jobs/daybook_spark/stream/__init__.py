"""A query that follows topics.

In reading order:

    reader   what Spark calls
    offsets  how far a query is, and how far its next batch goes
    topics   what exists of the topics that it follows
    losses   whether entries are gone that it has not read
    cursor   the subscription that keeps them for it
"""
