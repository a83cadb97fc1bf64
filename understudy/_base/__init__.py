"""What every layer may use: time, JSON values, worker threads, tasks and event loops."""
