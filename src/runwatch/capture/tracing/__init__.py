"""Traces of a process, one framework per file."""
