"""What a run is made of: the facts that are recorded, their fold, and the state that it gives."""
