"""What pages and API show, each view as JSON."""
