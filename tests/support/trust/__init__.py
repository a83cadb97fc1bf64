"""Who may decide: a random story, a judge of its records, and builds with one rule left out."""
