"""The machine that copies a ledger's entries to another bookie, and its plan."""
