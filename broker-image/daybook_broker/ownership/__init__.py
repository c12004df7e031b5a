"""Which topics this broker owns, and who owns the others: the driver of daybook/core/topics/ownership.

In reading order:

    api         what lookups return, what the broker is notified of, and the settings
    session     until when this broker's session certainly lives (rule 46)
    members     the registered brokers and the leader, followed
    probe       whether another broker answers
    held        the leases of this broker: taken, handed over, lost
    leading     what the leader does: it chooses, and sheds
    lookups     lookups, held while the answer is in doubt
    ownership   the whole
"""
