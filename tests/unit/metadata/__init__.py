"""The metadata store: one contract, over ZooKeeper and over memory."""
