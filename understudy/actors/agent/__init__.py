"""One agent in memory: its slot, its activation, its actor, its run task, and who waits for it."""
