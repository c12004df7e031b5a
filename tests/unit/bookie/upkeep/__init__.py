"""What a bookie does in the background: garbage collection, scrubbing, space."""
