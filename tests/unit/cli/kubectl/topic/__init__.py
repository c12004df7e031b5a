"""`kubectl daybook topic` without an API server: what it asks brokers by their pods, and what it prints."""
