"""What a store tells about its agents. Nothing here activates an agent."""
