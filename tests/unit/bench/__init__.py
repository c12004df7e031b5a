"""The arithmetic of the benches: what they count from, what failed, and what the figures of several rounds are."""
