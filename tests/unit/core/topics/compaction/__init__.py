"""Which messages a compaction keeps, and how it stores them."""
