"""Sessions: named stretches of time."""
