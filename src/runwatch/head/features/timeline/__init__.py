"""A run's timeline."""
