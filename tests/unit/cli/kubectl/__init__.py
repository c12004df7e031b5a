"""`kubectl daybook`, judged on recorded objects."""
