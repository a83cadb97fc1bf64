"""The contract of a `Middleware`."""
