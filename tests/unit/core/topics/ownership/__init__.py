"""Tests of bundles, their assignment, shedding and lookups."""
