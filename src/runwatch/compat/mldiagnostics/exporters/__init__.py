"""The original's exporters: each hands on to the current run what it is given."""
