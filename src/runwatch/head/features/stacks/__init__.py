"""Stacks, incidents, the hang watch."""
