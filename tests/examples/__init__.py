"""Each example is run as a user would run it."""
