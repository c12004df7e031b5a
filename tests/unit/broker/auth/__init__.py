"""Tests of tokens, roles and permissions."""
