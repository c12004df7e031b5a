"""Auto-recovery as processes: the elected auditor that finds what is under-replicated, and the workers that mend it."""
