"""The contract of a `Backend`."""
