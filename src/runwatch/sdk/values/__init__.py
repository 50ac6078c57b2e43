"""Turns the values that a program logs into what can be recorded."""
