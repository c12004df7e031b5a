"""Tests of the `daybook` command."""
