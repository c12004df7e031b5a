"""Which broker owns a topic: bundles of topics, the leader's choice for each, and what a broker answers to a lookup.

Pure, as all of the core. The lease of a bundle is an ephemeral node (daybook/metadata/bundles.py); that two owners never both write a
topic is rule 38's, so what is decided here may be late or wrong without harm to what is stored. It decides how soon clients reach
the owner, and that an owner in doubt answers nobody (rule 46).

In reading order:

    bundles      the hash ranges of a namespace
    load         what brokers report
    assignment   the leader's choice of a broker for a bundle without an owner
    shedding     which bundles leave a broker that is busier than the others
    lookup       what a broker answers: mine, another's, the leader's to decide, or not yet
"""
