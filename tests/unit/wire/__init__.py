"""The wire between client and bookie."""
