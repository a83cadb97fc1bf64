"""One-screen scripts, each runnable as it stands: `python examples/NAME.py`."""
