"""Runs: the list, one of them, deleting."""
