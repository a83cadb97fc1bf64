"""`Agent`: builds a definition, starts runs of it, and continues them."""
