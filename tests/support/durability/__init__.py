"""Processes that are killed at every point, and the judges of what others do afterwards."""
