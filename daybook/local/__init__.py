"""A cluster on this machine: a real ZooKeeper and real bookie processes, for trying out, tests and benches.

In reading order:

    cluster         starts and stops it, in racks
    bookie_process  one bookie, by its process id
    zookeeper       the server, from the jars that the pyspark wheel carries
    cluster_file    `cluster.json`: what runs, for those who use it, kill it or start it again
"""
