"""Pulsar's Java and Go clients, unmodified, as witnesses: programs of ours use each feature against two brokers and report what they saw (`make witness`)."""
