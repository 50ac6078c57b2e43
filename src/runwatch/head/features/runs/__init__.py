"""Runs: the list, one run, deleting."""
