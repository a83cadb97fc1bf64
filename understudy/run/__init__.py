"""What a step and a hook get: the definition, the run, its ledger, and a tool call."""
