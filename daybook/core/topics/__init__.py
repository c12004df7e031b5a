"""A topic: messages that continue for ever, kept as a list of ledgers.

In reading order:

    name           how a topic is called
    ledger_list    the record that says which ledgers a topic consists of, and the only ways in which it may change
    cursor_record  how far a subscription is, as it survives its broker
"""
