"""TODO: a map of `tests.unit.core.format`."""
