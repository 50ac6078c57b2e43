"""What the time of runs went into."""
