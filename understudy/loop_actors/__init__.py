"""Actors on event loops: Pykka's actors, and supervisors for them. Knows nothing of agents."""
