"""What a step and a hook are given: the definition, the run, its ledger, and a call of a tool."""
