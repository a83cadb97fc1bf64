"""What every layer may use: time, JSON values, worker threads and event loops."""
