"""A cluster on this machine: a real ZooKeeper and real bookie processes, for first steps, tests and benchmarks.

In reading order:

    cluster         starts and stops it, in racks
    bookie_process  one bookie, by its process id
    zookeeper       the server, from the jars that the pyspark wheel carries
    cluster_file    `cluster.json`: the running processes, for programs and people who use, kill or restart them
"""
