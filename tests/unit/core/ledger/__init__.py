"""Ledger metadata, its transitions and its changes."""
