"""The bookie: journal, write cache, store, server, and what a restart makes of them."""
