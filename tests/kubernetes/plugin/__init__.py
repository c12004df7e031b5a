"""`kubectl daybook` against a real API server."""
