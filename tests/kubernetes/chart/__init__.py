"""The Helm chart: what it renders, what it may do, and whether a real API server takes it."""
