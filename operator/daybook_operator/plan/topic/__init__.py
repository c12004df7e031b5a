"""The plan for a Topic resource: its partitions and its policy in ZooKeeper, never its list of ledgers (rule 38).

In reading order:

    spec      what is asked for
    policy    what that means for the policy that brokers read
    observed  what is true now
    jobs      what jobs did for it
    status    what the status says
    plan      what to do
"""
