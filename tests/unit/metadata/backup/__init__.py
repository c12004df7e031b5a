"""Tests of daybook.metadata.backup."""
