"""What hosts that share a PostgreSQL database need: SQL, each beside its Python."""
