"""The parts that every process needs: settings, logs, metrics, health, signals, TLS files, ports and clocks.

This package imports nothing else of Daybook, so a bookie, a broker, the operator and a test can all use it.

In reading order:

    settings                 configuration
    logs, log_output         structured logs: what a module logs with, and the form of a process's lines
    metrics, buckets         Prometheus; the buckets of its histograms
    health, signals          `grpc.health.v1`; SIGTERM and SIGINT
    clock                    the clocks, with units in their names
    ports, tls               addresses; certificates that may be replaced at any time
    allocator                glibc's settings of processes that handle frames
    garbage                  when garbage is collected, in processes of very many objects
    scheduling, descriptors  how the kernel schedules threads; how many files a process may have open
    zookeeper_ensemble, zookeeper_server  the entry point of the ZooKeeper image
"""
