"""Named stretches of time."""
