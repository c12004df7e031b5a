"""A topic: messages that continue for ever, kept as a list of ledgers.

In reading order:

    name           how a topic is called
    ledger_list    the record that says which ledgers a topic consists of, and the only ways in which it may change
    extent         which entries exist for readers, what comes next, how much lies between
    cursor_record  how far a subscription is, as it survives its broker
    acks           the same in memory, as it changes with each acknowledgement, over
    entry_ranges   sets of entries of one ledger
    phases         how an owner takes a topic over, writes it and gives it up
    events         what goes into the managed ledger's machine, and what comes out
    managed_ledger the machine of one topic on its owner, and its parts:
    judged_change  a change of a node, until its outcome is known
    list_update    changes of the list
    list_orders    changes that do not begin a ledger: trims, what a compaction wrote, offloads
    open_ledger    when a ledger has had enough
    pending        what is published and not acknowledged
    publish_times  where in a topic a time is, for a TTL and a seek
    confirm_times  about when an entry was published, from memory
    trimming       which ledgers nobody needs any more
    trim_plan      the judgement of a trim that a job planned
    deletions      ledgers that no list names
    unnamed        ledgers that a crash left behind
    retention_plan what a retention job may ask for and delete, without being an owner
    cursor_phases  how a cursor is opened, persisted, closed and deleted
    cursor_events  what goes into the cursor's machine, and what comes out
    cursor         the machine of one subscription on the topic's owner, and its parts:
    cursor_pace    when the state is persisted next, and where
    cursor_node    changes of the cursor's node, each until its outcome is known
    dispatch/      which consumer of a subscription receives which entry
    compaction/    which messages stay once only the last one of each key does
    offload/       which ledgers lie in files of an object store, and when their replicas go
    manager        the Topic resource that manages a topic
    job_terms      when jobs compact and offload a topic, and to where
    job_result     what a job did for a topic the last time
    policy         what is set for topics, and what it means for a ledger
    job_selection  which topics a job takes
    ownership/     which broker owns a topic
"""
