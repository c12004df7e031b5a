"""Real processes: started, killed, paused, starved and corrupted."""
