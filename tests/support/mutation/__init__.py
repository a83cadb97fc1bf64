"""Small changes of the modules that carry the guarantees: a test must see each of them."""
