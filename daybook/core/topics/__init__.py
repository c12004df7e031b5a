"""A topic: messages that continue for ever, kept as a list of ledgers.

In reading order:

    name           how a topic is called
    ledger_list    the record that says which ledgers a topic consists of, and the only ways in which it may change
    cursor_record  how far a subscription is, as it survives its broker
    phases         how an owner takes a topic over, writes it and gives it up
    events         what goes into the managed ledger's machine, and what comes out
    managed_ledger the machine of one topic on its owner, and its parts:
    list_update    changes of the list, each until its outcome is known
    open_ledger    when a ledger has had enough
    pending        what is published and not acknowledged
    trimming       which ledgers nobody needs any more
    deletions      ledgers that no list names
"""
