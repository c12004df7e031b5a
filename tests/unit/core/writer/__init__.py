"""The machine that writes a ledger, and its parts."""
