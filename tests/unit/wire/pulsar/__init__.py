"""Tests of the Pulsar binary protocol."""
