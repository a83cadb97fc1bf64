"""Our speed beside the rivals', measured in one run."""
