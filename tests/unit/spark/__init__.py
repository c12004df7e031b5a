"""Tests of the data source, over a real Spark and a real cluster."""
