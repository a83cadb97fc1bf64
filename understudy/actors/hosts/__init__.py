"""What hosts of one store say to each other: calls, events, and runs to continue."""
