"""Where a run waits, and what ends the wait: points, their tokens, answers, and due times."""
