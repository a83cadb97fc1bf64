"""The agent over a real provider client and real sockets, against a local server."""
