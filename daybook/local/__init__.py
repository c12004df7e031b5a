"""A cluster on this machine: a real ZooKeeper, real bookies and brokers as processes, for first steps, tests and benchmarks.

In reading order:

    cluster         starts and stops it, in racks
    bookie_process, broker_process  one bookie, one broker
    child           what both are: a process with its settings in a file, by its process id
    zookeeper       the server, from the jars that the pyspark wheel carries
    cluster_file    `cluster.json`: the running processes, for programs and people who use, kill or restart them
"""
