"""Real processes, real ZooKeeper, real faults.

integration/  workloads whose histories are judged
chaos/        faults drawn from a seed; chaos/powercut/ cuts the power of a simulated block device
fuzz/         hostile bytes, on files and on the wire
"""
