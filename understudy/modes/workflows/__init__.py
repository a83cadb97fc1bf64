"""Modes that run several agents: in order, again and again, or side by side."""
