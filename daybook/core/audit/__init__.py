"""Who is lost, which ledgers are under-replicated, and which of them get a task.

In reading order:

    lost_bookies  when a bookie is lost, and when an open fragment has waited long enough
    pace          how fast ledgers are read
    cycle         what one cycle over all ledgers is about, and what it found
    cycle_judge   judges the ledgers of a cycle, and remembers what earlier cycles observed
    examination   the machine for one ledger in one cycle: read, list, judge, see to its task
    auditor       what is remembered between cycles, and who is examined when

How one ledger is judged, and what a task is, `daybook.core.repair` says: workers need both as well.
"""
