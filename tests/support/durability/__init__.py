"""Processes that are killed at every point, and what is judged of them when others went on."""
