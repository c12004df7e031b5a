"""What lacks replicas, and whose turn it is to be repaired.

In reading order:

    judgement     what is wrong with one ledger, and what would repair it: a function
    lost_bookies  when a bookie is lost, and when an open fragment has waited long enough
    auditor       the machine: every ledger judged, tasks written and removed
    task          a ledger's place in the queue of repairs
"""
