"""The local cluster of `daybook up`, and what it starts."""
