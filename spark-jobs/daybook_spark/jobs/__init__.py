"""Jobs for topics: what they have in common, and each job.

A job reads the topics' metadata by itself, and asks a topic's owner for every change of it, because the owner alone changes its list
(rule 38). Without a broker nothing is changed. A topic whose part fails holds up no other one: what became of each is a result.

In reading order:

    result         what a job did for a topic, and the summary of all
    topics         which topics a job takes
    retain         one topic's part of a retention: a trim by its owner, and ledgers that nothing names
    retention      the job that does so for many topics, in tasks
    compaction     of each key the last message stays; its passes are in compact/
    copying        in a task: one ledger into one file, which is read back
    offload_topic  one topic's part of an offload: plan, copies, the owner's commit, files that nobody names
    offload        the job that does so for many topics
    restoring      in a task: one file into a fresh ledger, which is read back
    restore_topic  one topic's part of a restore: plan, copies, the owner's commit, files whose lag is over
    restore        the job that does so for many topics
"""
