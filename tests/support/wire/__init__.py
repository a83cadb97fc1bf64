"""Model providers: a server that plays their wire formats, for their real clients."""
