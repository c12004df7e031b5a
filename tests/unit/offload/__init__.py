"""Files of offloaded ledgers: on a local disk, and in an S3."""
