"""Which bookies an ensemble takes."""
