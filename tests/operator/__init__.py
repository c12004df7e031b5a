"""Tests of the operator: its pure plans, and the whole of it on a real API server."""
