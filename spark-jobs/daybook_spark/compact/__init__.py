"""The compaction of a topic as a job, for topics that are too large for their owner: of each key the last message stays.

Two passes, as the broker has them (daybook/core/topics/compaction), each of them in tasks. The first one reads the keys and has Spark find the
last place of each, so that no task holds more than its share of the keys. The second one reads the same entries again and writes what stays,
in order, into one compacted ledger for each part of the topic. The owner then names the ledgers (rule 38, rule 41).

In reading order:

    plan      what is read, in parts
    entries   the entries of a part
    places    the rows of the first pass, and which places stay
    columns   batches as columns: the rows of a part, and what stays of a batch
    kept      the entries of the second pass beside the places that stay
    writing   what a task writes
    job       all of it, up to the owner's commit
"""
