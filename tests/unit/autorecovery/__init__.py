"""Auto-recovery: against fakes that answer at once, and as processes against real bookies."""
