"""Tests of the admin API, by real HTTP."""
