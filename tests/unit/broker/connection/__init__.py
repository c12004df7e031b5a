"""Tests of the binary protocol's port."""
