"""What the library promises, test by test; the folders mirror its rooms."""
