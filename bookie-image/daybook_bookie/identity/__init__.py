"""Which bookie this is, and whether it may start on what it finds.

In reading order:

    boot           from directories and ZooKeeper to storage that may be served
    cookies        which bookie a directory belongs to
    epoch          the epoch of its disks
    rollback       the guard against a ZooKeeper that went back in time
    kept_mode      the read-only mode that an administrator set
    metadata_link  the metadata store, for a process made of threads
"""
