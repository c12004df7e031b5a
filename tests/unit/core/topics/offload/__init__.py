"""What a topic's list says of ledgers in files, and who changes it (rule 70)."""
