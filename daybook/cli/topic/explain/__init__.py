"""`topic explain`: why a topic is not as it should be, in a shell and in kubectl.

facts                an immutable snapshot of the topic
explain              the steps, in order, and their text
topic_steps          from the resource to the quota
subscription_steps   from permits to the oldest message
step, dialect        a step; the commands that a step names as the next ones
observe              the snapshot that ZooKeeper and the brokers give
"""
