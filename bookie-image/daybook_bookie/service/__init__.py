"""What clients ask of a bookie.

In reading order:

    roles       who may ask what
    admission, deadlines, budget  who gets a worker, what ends a call, how many bytes may be held
    questions, attach  read the metadata that a decision about a key or an attachment needs
    append, streams  one client's append stream, and the streams that are open
    fencing     refused from now on, answered once it is durable
    reads       a range, from the cache and the store
    recovering  the fences and reads of many recoveries at once
    long_poll   questions for a LAC that wait without a thread each
    availability  whether normal writes are accepted, and what the registration says of that
    control     the control calls
"""
