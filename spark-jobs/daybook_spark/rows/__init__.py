"""Entries as Arrow batches.

In reading order:

    columns      the columns of ledgers and topics, and which of them a query wants
    ledger_rows  entries of ledgers, as they are
"""
