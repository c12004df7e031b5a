"""The runtime package: the parts that every process needs."""
