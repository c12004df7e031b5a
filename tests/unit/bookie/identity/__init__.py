"""A bookie's identity: cookies, incarnations, epochs, claims and registration."""
