"""The waits of a run, and what ends them: points, their tokens, answers, and due times."""
