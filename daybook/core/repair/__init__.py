"""The queue of repairs, and one ledger's replicas brought back: copies first, then metadata names the new bookie.

In reading order:

    plan        what a repair does, as values
    repair      the machine that carries a plan out, fragment by fragment
    fragment    the part of it that repairs one fragment: copy, name the successors, check them
    copy        the part of that which copies what one position owes to one bookie
    judgement   what is wrong with one ledger, and which plans would repair it: a function
    task        why a ledger is in the queue and from when on it is due; the stored format, the back-off
    order       what a worker is asked to repair, by a task or by name
    requests    what the machines of worker and auditor ask of their owner, and its answers
    work        the machine for one ledger's turn: recover, repair plan by plan, settle the task
"""
