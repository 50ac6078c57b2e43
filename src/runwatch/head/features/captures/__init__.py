"""Captures on demand."""
