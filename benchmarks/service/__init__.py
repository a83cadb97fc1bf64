"""What a service costs: one app on this library and on others, under load."""
