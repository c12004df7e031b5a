"""TODO: a map of `tests.unit.bookie.journal`."""
