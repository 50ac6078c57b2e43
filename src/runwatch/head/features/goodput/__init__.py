"""Goodput: how the time of runs was spent."""
