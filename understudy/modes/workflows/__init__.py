"""Modes that run several agents: in order, in a loop, or in parallel."""
