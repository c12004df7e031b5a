"""Tests of the driver of the ownership: memory store and real ZooKeeper."""
