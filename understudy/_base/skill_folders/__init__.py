"""Folders of skills: what is in them, which of it a person has accepted, and what has changed."""
