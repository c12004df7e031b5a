"""Tests of the broker's parts."""
