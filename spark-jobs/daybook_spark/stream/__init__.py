"""A query that follows topics."""
