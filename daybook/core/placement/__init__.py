"""Where the copies of an entry go.

In reading order:

    policy      what a policy is asked, and what it knows of bookies
    search      the search for the best seating of bookies in an ensemble
    policies    random, rack-, zone- and region-aware, each with or without weighing by free space
    among       a policy that chooses among some bookies alone: those of a ledger's pool
"""
