"""A copy of a cluster's metadata in a file, for a ZooKeeper that lost its data (rule 68).

In reading order:

    file        the file: one line for each node, each with a checksum, and a last line that says that it is whole
    snapshot    reads all that persists, as it was at one instant
    restore     writes it back, so that nothing is deleted, given out twice or closed too early because of it
"""
