"""The `daybook` command."""
