"""The contract of a `Store`."""
