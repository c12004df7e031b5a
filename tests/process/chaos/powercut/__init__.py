"""Power cuts for real processes: what was not synced may be gone, in any mixture of sectors."""
