"""The machine that recovers a ledger, and its parts."""
