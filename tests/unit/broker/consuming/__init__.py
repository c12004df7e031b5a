"""Consumers of a broker, mostly through the unmodified client of Pulsar."""
