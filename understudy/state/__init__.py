"""The records of a run, their fold, and the state that it gives."""
