"""The `daybook` command, and the cluster that it runs on one machine."""
