"""`Agent`: builds a definition, begins a run of it, continues one."""
