"""The machine that reads a ledger."""
