"""Files of offloaded ledgers in an object store: written by jobs, read by brokers and by Spark (rule 70).

Everything here blocks, and belongs on a thread of its own. PyArrow is the optional extra `offload`, and imported where it is used.

In reading order:

    errors   what goes wrong, and what to do
    store    an object store, by its URI
    format   the columns of a file, and its limits
    writing  one ledger into one file
    reading  a file: any of its entries, and whether it is whole
    rows     a ledger's messages as plain Parquet, beside its entries
    gone_topics  the folders of topics, and a note beside the files of a deleted one (rule 73)
"""
