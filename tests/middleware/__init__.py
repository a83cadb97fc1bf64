"""Each middleware, by what a user of it sees."""
