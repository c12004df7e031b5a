"""Hostile input: bytes that nobody of ours would send or write, against everything that reads bytes."""
