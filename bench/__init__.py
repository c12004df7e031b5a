"""Measurements of a whole ledger store on one machine, and of Apache BookKeeper beside it."""
