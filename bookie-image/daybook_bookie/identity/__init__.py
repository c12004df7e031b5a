"""Which bookie this is, and whether it may start on what it finds.

In reading order:

    boot           from directories and ZooKeeper to storage that may be served
    cookies        who a directory belongs to
    epoch          the age of its disks
    rollback       the guard against a ZooKeeper that went back in time
    kept_mode      that an administrator made it read-only
    metadata_link  the metadata store, for a process made of threads
"""
