"""What the auditor concludes, from metadata and the bookies' answers alone."""
