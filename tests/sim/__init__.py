"""The simulator: the core under faults, thousands of seeds, each repeatable."""
