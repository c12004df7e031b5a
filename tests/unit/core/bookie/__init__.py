"""What a bookie decides about one ledger: fence, limbo, LAC, ranges."""
