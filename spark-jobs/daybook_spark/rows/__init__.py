"""Entries as Arrow batches.

In reading order:

    columns      the columns of ledgers and topics, and which of them a query wants
    ledger_rows  entries of ledgers, as they are
    topic_rows   entries of topics, one row for each message, with
    messages     what is in an entry
    batch_columns  batches as columns, many messages at a time, by
    spans        records of protobuf, read by NumPy
    values       the values of columns
"""
