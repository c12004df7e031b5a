"""The `daybook` command, and the local cluster that it starts."""
