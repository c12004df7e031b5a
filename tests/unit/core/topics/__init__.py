"""Tests of the pure parts of topics."""
