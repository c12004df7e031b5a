"""A bookie's store: write cache, blocks, index of intervals, checkpoints."""
