"""One tool call, from its arguments to its result."""
